"""The broker of a ship in flight dies with damaged files and comes back; the ship flies on."""

import json
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from blimp.service.stack.broker_files import DATA
from blimp.tasks.client import VehicleClient
from tests.disk import small_disk
from tests.sim.running import RunningStack
from tests.sim.test_stack import climb

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def scramble(data: Path) -> None:
    """Damage a command's length in the middle of what was appended."""
    (path,) = data.glob("*.incr.aof")
    content = path.read_bytes()
    at = content.index(b"\r\n*", len(content) // 2) + 3
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")


def rename_a_command(data: Path) -> None:
    """Damage that no check of the format finds: the server alone refuses it."""
    (path,) = data.glob("*.incr.aof")
    content = path.read_bytes()
    at = content.upper().index(b"\r\nXADD\r\n") + 2
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")


def replace_by_a_file(data: Path) -> None:
    shutil.rmtree(data)
    data.write_text("x")


def remove_base(data: Path) -> None:
    (path,) = data.glob("*.base.*")
    path.unlink()


DAMAGE: tuple[tuple[Callable[[Path], None], str], ...] = (
    (scramble, "cut there"),
    (rename_a_command, "the server cannot read its data: the broker starts empty"),
    (replace_by_a_file, "is of another kind: the broker starts empty"),
    (remove_base, "cannot be read: the broker starts empty"),
)


def test_a_broker_that_dies_with_damaged_files_comes_back_and_the_ship_flies_on() -> None:
    with RunningStack("--seed", "3") as stack:
        with stack.world() as world:
            takeoff = climb(stack, world)
            stack.finish(takeoff)
            flight = stack.pid("flight")

            def flies() -> bool:
                return world.truth().altitude_m > 0.3 and not world.report().outputs_safe

            for damage, said in DAMAGE:
                since = len(stack.events)
                stack.kill("broker", signal.SIGSTOP)  # nothing is appended meanwhile
                damage(stack.paths.broker / DATA)
                stack.kill("broker")
                stack.wait_for_event(
                    lambda e: (e["event"], e.get("process")) == ("restarted", "broker"),
                    since=since,
                )
                assert said in stack.log()
                stack.wait_until(
                    lambda: stack.ground("--timeout", "5", "ping").status == 0, within_s=60.0
                )
                assert flies(), damage.__name__
            aside = stack.paths.broker.with_name("aside")
            since = len(stack.events)
            stack.kill("broker", signal.SIGSTOP)
            stack.paths.broker.rename(aside)
            stack.paths.broker.write_text("no directory")
            stack.kill("broker")
            failing = stack.wait_for_event(lambda e: e["event"] == "failing", since=since)
            assert failing["process"] == "broker"
            assert stack.process.poll() is None
            stack.paths.broker.unlink()
            aside.rename(stack.paths.broker)
            stack.wait_for_event(
                lambda e: (e["event"], e.get("process")) == ("restarted", "broker"), since=since
            )
            assert stack.pid("flight") == flight, stack.log()
            stack.wait_until(
                lambda: stack.ground("--timeout", "5", "ping").status == 0, within_s=60.0
            )
        assert stack.end() == 0
        assert stack.left_behind() == []


def test_a_disk_that_is_full_under_all_of_it_and_the_ship_flies_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker's files, the recordings, and the file that standard error goes to."""
    with small_disk(mib=160) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
        with RunningStack("--seed", "3", logs=disk.path / "logs") as stack:
            with stack.world() as world:
                stack.finish(climb(stack, world))
                flight = stack.pid("flight")
                disk.fill()

                def refused() -> bool:
                    disk.fill()  # whatever became free meanwhile
                    answer = stack.ground("--timeout", "5", "ping")
                    return answer.status != 0 and "No space left on device" in answer.stderr

                stack.wait_until(refused, within_s=60.0)
                since = len(stack.events)
                stack.kill("broker")
                stack.wait_for_event(
                    lambda e: (e["event"], e.get("process")) == ("restarted", "broker"),
                    since=since,
                )
                assert stack.process.poll() is None
                assert stack.pid("flight") == flight
                assert world.truth().altitude_m > 0.3
                assert not world.report().outputs_safe
                disk.fill()
                # As from another machine: it is published, and stored nowhere.
                with VehicleClient(stack.ready["broker"], "twin") as far:
                    reply = far.estop(timeout_s=10.0)
                    assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"broadcast"})
                assert world.report().outputs_safe
                here = stack.ground("estop")  # its socket needs no broker at all
                assert "socket" in json.loads(here.stdout)["result"]["roads_ms"]
                disk.free()
                stack.wait_until(
                    lambda: stack.ground("--timeout", "5", "ping").status == 0, within_s=60.0
                )
            assert stack.end() == 0
