"""Troubles of a flight from its broker, its clocks and its disk: each test says what is expected.

The ship has mounts of its own, so that a name or a disk can go for it alone: that needs root.
"""

import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient
from blimp.link.paths import socket_path
from blimp.link.stop_socket import StopSocket
from blimp.tasks.client import VehicleClient
from blimp.types import Snapshot
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.faults.stepped import SHIM, until_stepped
from tests.forked import ran
from tests.needs import no_mount, not_run
from tests.sim.running import DEADLINE_S, RunningStack
from tests.stopwatch import Stopwatch
from tests.tcp_link import TcpLink

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

HOURS_S = 7200.0
BACK_S = 5.0  # after a link is mended, commands pass and the failsafe is over
TURNED = {"name": "rudder", "deg": 15.0}
LOST = "link lost: holding"
NO_NAME = "Name or service not known"


@pytest.fixture
def directory() -> Iterator[Path]:
    if why := no_mount():
        raise not_run(why)
    with socket_directory() as directory:
        yield directory


def with_mount(mount: str) -> tuple[str, ...]:
    """Return the words before a command that give it, and its children, a mount of their own."""
    return ("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh")


class Snapshots:
    """What the flight process says, straight from its mailbox, whatever its broker does."""

    def __init__(self, stack: RunningStack, using: contextlib.ExitStack) -> None:
        self._stack = stack
        client = MailboxClient(server_path=stack.paths.flight, clock=SystemClock())
        self._mailbox = using.enter_context(client)

    def now(self) -> Snapshot | None:
        self._mailbox.greet(link=False)
        return self._mailbox.snapshot()

    def until(self, failsafe: str, *, deaf: bool) -> Snapshot:
        """Wait until the ship says that this failsafe is in force, and whether it is deaf."""

        def said() -> Snapshot | None:
            found = self.now()
            is_so = found is not None and (found.failsafe, bool(found.deaf)) == (failsafe, deaf)
            return found if is_so else None

        found = self._stack.wait_until(said, within_s=DEADLINE_S)
        assert found is not None
        return found


def takes_off(client: VehicleClient) -> None:
    assert client.send("arm", {"force": True}).wait(DEADLINE_S).state == "SUCCESS"
    takeoff = client.send("takeoff", {"altitude_m": 0.8})
    assert takeoff.wait(DEADLINE_S).state == "SUCCESS"


def test_a_link_that_is_half_open_a_name_that_is_gone_and_results_that_are_refused(
    directory: Path,
) -> None:
    """Expected of each: the ship flies on, says what it lacks, and is back soon after.

    half-open: link loss within seconds, with its reason; stops pass by the socket.
    name: the same; a worker that starts meanwhile waits, and says why.
    results: commands and stops act; a stop is confirmed all the same.
    """
    hosts = directory / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    with (
        EmbeddedBroker(directory=directory / "b") as broker,
        TcpLink(server=str(socket_path(directory / "b"))) as link,
        contextlib.ExitStack() as using,
    ):
        stack = RunningStack(
            "--seed", "3", "--bench",
            environment={"BLIMP_BROKER_URL": f"redis://localhost:{link.port}/0"},
            before=with_mount(f"mount --bind {hosts} /etc/hosts"),
        )  # fmt: skip
        using.callback(stack.close)
        client = using.enter_context(VehicleClient(broker.url, "twin"))
        world, snapshots = using.enter_context(stack.world()), Snapshots(stack, using)
        takes_off(client)
        flight = stack.pid("flight")

        link.freeze()
        lost = snapshots.until(LOST, deaf=True)
        assert "hears no broadcast: none of its own came back for" in lost.deaf
        assert not world.report().outputs_safe
        watch = Stopwatch()
        link.mend()
        snapshots.until("", deaf=False)
        assert client.send("ping", ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"
        assert watch.undisturbed_s() < BACK_S

        hosts.write_text("127.0.0.1 another\n")
        assert client.send("ping").wait(DEADLINE_S).state == "SUCCESS"  # it is connected
        link.cut()
        link.mend()
        snapshots.until(LOST, deaf=True)
        stack.wait_until(lambda: NO_NAME in stack.log(), within_s=DEADLINE_S)
        since, said = len(stack.events), len(stack.log())
        stack.kill("worker")
        stack.wait_until(lambda: NO_NAME in _of(stack, "no broker", said), within_s=DEADLINE_S)
        assert not world.report().outputs_safe
        watch = Stopwatch()
        hosts.write_text("127.0.0.1 localhost\n")
        stack.wait_for_event(lambda e: e.get("process") == "worker", since=since)
        snapshots.until("", deaf=False)
        assert watch.undisturbed_s() < BACK_S
        assert client.send("hold", ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"

        with redis.Redis(unix_socket_path=str(socket_path(directory / "b"))) as server:
            server.execute_command("ACL", "SETUSER", "default", "resetkeys", "~blimp*",
                                   "%R~celery-task-meta-*")  # fmt: skip
            assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
            assert world.report().outputs_safe
            # The last snapshot is older than the stop: "armed" in it is not the arming below.
            stack.wait_until(lambda: (s := snapshots.now()) and not s.armed, within_s=DEADLINE_S)
            waits = []
            for task, arguments, holds in (
                ("arm", {"force": True}, lambda: (s := snapshots.now()) and s.armed),
                ("mode", {"name": "MANUAL"}, lambda: (s := snapshots.now()) and s.mode == "MANUAL"),
                ("servo", TURNED, lambda: world.outputs()["rudder"] > 0.1),
            ):
                waits.append(client.send(task, arguments, ttl_s=30.0))
                stack.wait_until(holds, within_s=DEADLINE_S)
            assert "confirmation not stored" in stack.log()
            server.execute_command("ACL", "SETUSER", "default", "allkeys")
        assert [one.wait(DEADLINE_S).state for one in waits] == 3 * ["SUCCESS"]

        link.freeze()
        confirmed: list[object] = []
        with StopSocket(stack.paths.flight, clock=SystemClock()) as road:
            road.fire(id="by socket", source="test", on_outcome=confirmed.append)
            stack.wait_until(lambda: confirmed, within_s=DEADLINE_S)
        assert world.report().outputs_safe
        assert stack.pid("flight") == flight
        link.mend()


def _of(stack: RunningStack, event: str, since: int) -> str:
    """Return the lines of the stack's log from letter `since` on that have this event."""
    lines = stack.log()[since:].splitlines()
    return "\n".join(line for line in lines if event in line)


class Clocks:
    """Clocks of processes that a preloaded library steps: see `tests/faults/stepped.py`."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._shim, source = directory / "shim.so", directory / "shim.c"
        source.write_text(SHIM)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            end = pytest.fail if os.environ.get("CI") else pytest.skip
            end("no C compiler, which makes clocks step: install gcc")
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._shim), str(source), "-ldl"]
        subprocess.run(words, check=True, capture_output=True)
        self._files = {name: directory / f"{name}.step" for name in names}
        for file in self._files.values():
            file.write_bytes(bytes(8))

    def environment(self, name: str) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._shim), "STEP_FILE": str(self._files[name])}

    def step(self, name: str, seconds: float) -> None:
        with self._files[name].open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:8] = struct.pack("q", round(seconds * 1e9))


def test_clocks_that_step_by_hours_in_flight(directory: Path) -> None:
    """Expected of the broker's, the ship's and the ground's clock, two hours on, and back.

    The ship flies on without a failsafe, commands and stops pass, and what waited in the queue
    over a step is void.
    """
    step_clocks(directory, key="k" * 32)


def step_clocks(directory: Path, *, key: str | None) -> None:
    clocks = Clocks(directory, "broker", "ship", "ground")
    words = [f"{name}={value}" for name, value in clocks.environment("broker").items()]
    signing = {} if key is None else {"BLIMP_SIGNING_KEY": key}
    with (
        EmbeddedBroker(directory=directory / "b", before=("env", *words)) as broker,
        contextlib.ExitStack() as using,
    ):
        stack = RunningStack(
            "--seed", "3", "--bench",
            environment={"BLIMP_BROKER_URL": broker.url, **signing, **clocks.environment("ship")},
        )  # fmt: skip
        using.callback(stack.close)
        client = using.enter_context(VehicleClient(broker.url, "twin", signing_key=key))
        world, snapshots = using.enter_context(stack.world()), Snapshots(stack, using)
        path = str(socket_path(directory / "b"))
        server = using.enter_context(redis.Redis(unix_socket_path=path))
        takes_off(client)
        for whose in ("broker", "ship", "ground"):
            for seconds in (HOURS_S, -HOURS_S, 0.0):
                clocks.step(whose, seconds)
                if whose == "broker":
                    until_stepped(server, seconds)
                ground = ran(
                    [sys.executable, "-m", "ground_station", "--json", "hold"],
                    env=stack.environment | clocks.environment("ground"),
                )
                assert ground.returncode == 0, ground.stdout + ground.stderr
                assert snapshots.until("", deaf=False).armed
                assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
                assert world.report().outputs_safe
                armed = client.send("arm", {"force": True}).wait(DEADLINE_S)
                assert armed.state == "SUCCESS", armed
        assert client.send("mode", {"name": "MANUAL"}).wait(DEADLINE_S).state == "SUCCESS"
        for seconds in (HOURS_S, -HOURS_S):
            stack.kill("worker", signal.SIGSTOP)
            waits = client.send("motor", {"name": "tail", "percent": 9.0, "seconds": 1.0})
            clocks.step("broker", seconds)
            until_stepped(server, seconds)
            stack.kill("worker", signal.SIGCONT)
            ended = waits.wait(DEADLINE_S)
            assert ended.state == "EXPIRED", ended
            assert "s old" in ended.reason
            assert world.outputs()["tail"] == 0.0
            clocks.step("broker", 0.0)
            until_stepped(server, 0.0)


def test_a_disk_that_becomes_read_only_under_a_ship(directory: Path) -> None:
    """Expected: its motors turn on, and it obeys without its log; a lost parameter is said.

    A flight process and a worker that are restarted there start.
    """
    disk = directory / "disk"
    disk.mkdir()
    stack = RunningStack(
        "--seed", "3", "--bench",
        environment={
            "BLIMP_LOG_MB": "50",
            "BLIMP_LOG_DIR": str(disk / "logs"),
            "STATE_DIRECTORY": str(disk / "state"),
        },
        before=with_mount(f"mount -t tmpfs none {disk} && mkdir -m 700 {disk}/logs {disk}/state"),
    )  # fmt: skip
    with contextlib.ExitStack() as using:
        using.callback(stack.close)
        client = using.enter_context(VehicleClient(stack.ready["broker"], "twin"))
        world = using.enter_context(stack.world())
        assert client.send("arm", {"force": True}).wait(DEADLINE_S).state == "SUCCESS"
        assert client.send("mode", {"name": "MANUAL"}).wait(DEADLINE_S).state == "SUCCESS"
        motor = client.send("motor", {"name": "tail", "percent": -40.0, "seconds": 30.0})
        stack.wait_until(lambda: world.outputs()["tail"] < -0.3, within_s=DEADLINE_S)
        flight = stack.pid("flight")
        inside = ("nsenter", "-t", str(flight), "-m")

        def is_read_only() -> bool:
            """End the recorder, whose file keeps the disk writable; be quicker than the next."""
            listed = ran(["pgrep", "-P", str(stack.process.pid), "-f", "log record"])
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            remount = [*inside, "mount", "-o", "remount,ro", str(disk)]
            return subprocess.run(remount, capture_output=True, check=False).returncode == 0

        stack.wait_until(is_read_only, within_s=DEADLINE_S)
        assert client.send("ping").wait(DEADLINE_S).state == "SUCCESS"
        assert not world.report().outputs_safe
        assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        assert world.report().outputs_safe
        assert motor.wait(DEADLINE_S).state != "SUCCESS"
        assert stack.pid("flight") == flight
        assert client.send("arm", {"force": True}).wait(DEADLINE_S).state == "SUCCESS"
        assert client.send("disarm").wait(DEADLINE_S).state == "SUCCESS"
        client.send("param", {"name": "limits.speed_mps", "value": 0.5}, ttl_s=30.0)
        stack.wait_until(lambda: "parameter not kept" in stack.log(), within_s=DEADLINE_S)
        stack.wait_until(lambda: "not recording" in stack.log(), within_s=DEADLINE_S)
        for name in ("flight", "worker"):
            since = len(stack.events)
            stack.kill(name)
            stack.wait_for_event(lambda e: e.get("process") == name, since=since)  # noqa: B023
        assert client.send("ping", ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"
