"""The last release's ground commands this ship, and this ground commands its ship.

A club's laptop and its ships are not upgraded on one day. The last release is the newest tag before
HEAD; without any tag it is the commit below, which git's history has.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blimp.sim.remote import RemoteWorld
from tests.forked import ran
from tests.sim.running import Answer, RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BEFORE_THE_FIRST_TAG = "36714fefd285b31608efc1eaed9dc695d8c6a1b8"
GIT = ("git", "-c", "safe.directory=*", "-C", str(ROOT))
PACKAGES = ("blimp", "ground_station")

Ground = Callable[..., Answer]


def find_last_release() -> str:
    """Return a commit or a tag. Skips the test, saying why, where history does not have it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("NOT RUN: no git history here: an sdist, or no git")
    tag = [*GIT, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1"]
    found = ran(tag)
    name = found.stdout.strip() or BEFORE_THE_FIRST_TAG
    there = subprocess.run(
        [*GIT, "cat-file", "-e", f"{name}^{{commit}}"], capture_output=True, check=False
    )
    if there.returncode != 0:
        pytest.skip(f"NOT RUN: {name} is not in this clone's history; try: git fetch --unshallow")
    return name


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which a Python imports the last release's packages."""
    directory = tmp_path_factory.mktemp("last-release")
    archive = [*GIT, "archive", "--format=tar", find_last_release(), *PACKAGES]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(directory)], input=packed, check=True)
    # PYTHONSAFEPATH: `python -m` would import from the current directory, which is this code's.
    # PYTHONWARNINGS: it was written for the Pythons of its day; its warnings stay.
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "default"}


@pytest.fixture
def stack(request: pytest.FixtureRequest) -> Iterator[RunningStack]:
    if request.param and sys.version_info >= (3, 14):
        if find_last_release() == BEFORE_THE_FIRST_TAG:
            pytest.skip("NOT RUN: the last release cannot simulate a serial port on this Python")
    with RunningStack(
        environment=request.param and request.getfixturevalue(request.param)
    ) as running:
        yield running


def fly_and_stop(stack: RunningStack, ground: Ground) -> None:
    assert ground("ping").status == 0
    for command in (("--yes", "arm"), ("takeoff", "1.0")):
        answer = ground(*command)
        assert (answer.status, answer.json["state"]) == (0, "SUCCESS"), answer.stderr
    assert ground("status").json["armed"]
    assert ground("estop").status == 0
    status = ground("status").json
    assert (status["killed"], status["armed"]) == (True, False)
    with stack.world() as world:
        assert at_rest(world)
    refused = ground("mode", "hold")
    assert refused.status == 5, refused.stderr  # a kill is latched, in either release


def at_rest(world: RemoteWorld) -> bool:
    outputs = world.outputs()
    return all(outputs[name] == 0.0 for name in ("left", "right", "tail"))


def code_of(stack: RunningStack, name: str) -> str:
    """Return where a process of the stack imports its packages from."""
    environment = Path(f"/proc/{stack.pid(name)}/environ").read_bytes().split(b"\0")
    return next((v[11:].decode() for v in environment if v.startswith(b"PYTHONPATH=")), "")


@pytest.mark.parametrize("stack", [None], indirect=True)
def test_the_last_releases_ground_flies_this_ship(
    stack: RunningStack, last_release: dict[str, str]
) -> None:
    stack.environment |= last_release
    where = ran(
        [sys.executable, "-c", "import blimp; print(blimp.__file__)"],
        env={**os.environ, **last_release},
        check=True,
    ).stdout
    assert where.startswith(last_release["PYTHONPATH"])
    assert last_release["PYTHONPATH"] not in code_of(stack, "flight")
    fly_and_stop(stack, lambda *words: stack.finish(stack.start_ground("--json", *words)))


@pytest.mark.parametrize("stack", ["last_release"], indirect=True)
def test_this_ground_flies_the_last_releases_ship(
    stack: RunningStack, last_release: dict[str, str]
) -> None:
    assert code_of(stack, "flight") == code_of(stack, "worker") == last_release["PYTHONPATH"]
    fly_and_stop(stack, stack.ground)
