"""A local user who was there first: his directories, links and sockets are not used."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from blimp.config import ground_config
from blimp.errors import ConfigError
from blimp.link.paths import distrust, make_own_directory
from blimp.link.registry import register
from ground_station.discover import running_stacks
from tests.forked import Ended, blimp
from tests.needs import needs_root

NOBODY = 65534
pytestmark = needs_root("needs a second user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory as /tmp is: everybody may put a file there."""
    path = Path(tempfile.mkdtemp(prefix="b"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@contextmanager
def attacker(act: Callable[[], None]) -> Iterator[None]:
    """Run `act` as another user, in a process that is killed at the end of the block."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.umask(0)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            status = 0
        finally:
            os._exit(status)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def done_by_another(act: Callable[[], None]) -> None:
    """Run `act` as another user, to its end."""
    ready, end = os.pipe()

    def and_tell() -> None:
        act()
        os.write(end, b"x")
        signal.pause()

    with attacker(and_tell):
        os.close(end)
        assert os.read(ready, 1) == b"x"
    os.close(ready)


def up(shared: Path, *options: str) -> Ended:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(shared)}
    environment.pop("BLIMP_BROKER_URL", None)
    return blimp("up", "--sim", *options, environment=environment)


def test_a_runtime_directory_of_another_overwrites_no_file_through_his_link(shared: Path) -> None:
    victims = shared / "precious"
    victims.write_text("precious")
    victims.chmod(0o600)
    run = shared / "run"

    def plant() -> None:
        while True:  # the supervisor looks into the directory first: be quicker
            if run.stat().st_mode & 0o777 == 0o700:
                (run / "broker").mkdir(exist_ok=True)
                (run / "broker" / "broker.log").symlink_to(victims)
                signal.pause()

    done_by_another(lambda: run.mkdir(mode=0o777))
    with attacker(plant):
        ended = up(shared, "--runtime-dir", str(run))
    assert ended.returncode == 1
    assert f"runtime directory {run} belongs to user {NOBODY}, not to 0" in ended.stderr
    assert "--runtime-dir" in ended.stderr
    assert victims.read_text() == "precious"
    assert run.stat().st_mode & 0o777 == 0o777  # not touched


def test_a_run_registry_of_another_is_used_by_nobody(shared: Path) -> None:
    registry = shared / "blimp-0"
    done_by_another(lambda: registry.mkdir(mode=0o777))
    assert f"is in {registry}, which belongs to user {NOBODY}" in up(shared).stderr
    words = f"run registry {registry} belongs to user {NOBODY}, not to 0"
    with pytest.raises(ConfigError, match=words):
        register(registry / "twin.json", vehicle="twin", broker="b", runtime_dir=shared)
    with pytest.raises(ConfigError, match=words):
        running_stacks(ground_config({"XDG_RUNTIME_DIR": str(shared)}).registry)
    assert list(registry.iterdir()) == []
    assert list(shared.iterdir()) == [registry]
    assert words in up(shared, "--runtime-dir", str(shared / "run")).stderr
    assert not (shared / "run").exists()


def test_a_link_of_another_to_a_directory_of_ours_is_no_directory_of_ours(shared: Path) -> None:
    ours = shared / "ours"
    ours.mkdir(mode=0o700)
    done_by_another(lambda: (shared / "run").symlink_to(ours))
    assert up(shared, "--runtime-dir", str(shared / "run")).stderr.endswith(
        "run is not a directory: choose another --runtime-dir\n"
    )
    (ours / "deeper").mkdir()
    assert f"{shared}/run, which belongs to user {NOBODY}" in distrust(shared / "run" / "deeper")


def test_a_process_does_not_bind_in_a_directory_of_another(shared: Path) -> None:
    run = shared / "run"
    done_by_another(lambda: run.mkdir(mode=0o777))
    for command in (["fly", "--sim"], ["worker", "--broker", "redis://localhost"], ["sim"]):
        ended = blimp(*command, "--runtime-dir", run)
        assert ended.returncode == 1
        assert f"runtime directory {run} belongs to user {NOBODY}" in ended.stderr
    assert list(run.iterdir()) == []


def test_who_may_write_above_a_directory_may_replace_it(shared: Path) -> None:
    for mode, is_trusted in ((0o755, True), (0o775, True), (0o777, False), (0o1777, True)):
        above = shared / f"{mode:o}"
        above.mkdir()
        above.chmod(mode)
        with nullcontext() if is_trusted else pytest.raises(ConfigError, match="others may write"):
            make_own_directory(above / "a" / "b")
        assert (above / "a" / "b").exists() is is_trusted, mode
    done_by_another(lambda: (shared / "his").mkdir(mode=0o755))
    (shared / "his" / "ours").mkdir(mode=0o700)
    assert f"{shared}/his, which belongs to user {NOBODY}" in distrust(shared / "his" / "ours")


def test_whatever_the_umask_the_directories_are_for_this_user_alone(shared: Path) -> None:
    before = os.umask(0)
    try:
        make_own_directory(shared / "a" / "b")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (shared / "a", shared / "a" / "b")] == [0o700] * 2
