"""A running ship with all of its faces: real processes, a simulated machine below the drivers."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import msgspec

from blimp.airframe import Transmitter
from blimp.clock import SystemClock
from blimp.closing import Closing
from blimp.link.mailbox import MailboxClient
from blimp.link.telemetry import TelemetryReader, signer_of
from blimp.processes import _shim
from blimp.tasks.client import VehicleClient
from blimp.types import Snapshot
from tests.contracts import rows
from tests.contracts.faces.face import WITHIN_S
from tests.contracts.faces.listeners import listeners
from tests.process_table import children, command_line
from tests.sim.running import RunningStack

KEY = "k" * 32
PHRASE = "of the contract's gateway"
QUIET = 5  # snapshots in which a ship that was armed again would say so


class Rig(Closing):
    """`blimp up --sim` with a radio transmitter, a page and a gateway with a key, and its pilot."""

    def __init__(self) -> None:
        self._own = ExitStack()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        home = Path(self._own.enter_context(tempfile.TemporaryDirectory(prefix="blimp-")))
        file = home / "ship.json"
        table = Transmitter(mode_names=("ALTHOLD", "LAND"))
        ship = msgspec.structs.replace(rows.ship("crsf"), transmitter=table)
        file.write_bytes(msgspec.json.encode(ship))
        environment = {"BLIMP_SIGNING_KEY": KEY, "XDG_STATE_HOME": str(home)}
        self.stack = RunningStack(
            "--airframe", str(file), "--vehicle", "twin", environment=environment
        )
        self._own.callback(self.stack.close)
        self.broker = self.stack.ready["broker"]
        self.world = self._own.enter_context(self.stack.world())
        self.client = self._own.enter_context(VehicleClient(self.broker, "twin", signing_key=KEY))

        self.mailbox = self._own.enter_context(
            MailboxClient(server_path=self.stack.paths.flight, clock=SystemClock())
        )
        self._said: Snapshot | None = None

        self.page = self.stack.start_ground("--json", "page", "--port", "0", "--read-only")
        assert self.page.stdout is not None
        self.urls: dict[str, str] = json.loads(self.page.stdout.readline())

        self._phrase = home / "mavlink.key"
        self._phrase.write_text(PHRASE)
        self._phrase.chmod(0o600)
        self.radio, line = os.openpty()
        self._own.callback(os.close, self.radio)
        self._own.callback(os.close, line)
        self._line = os.ttyname(line)
        self.udp = self.tcp = 0
        self._start_gateway()
        self._own.callback(self._end_gateway)
        self.reader = self._own.enter_context(
            TelemetryReader(self.broker, "twin", signer=signer_of((KEY,)))
        )

    def _start_gateway(self) -> None:
        self.gateway = subprocess.Popen(
            [*_shim(signal.SIGTERM), sys.executable, "-m", "blimp", "mavlink",
             "--mavlink-key-file", str(self._phrase),
             "--listen", f"udp:127.0.0.1:{self.udp}", "--listen", f"tcp:127.0.0.1:{self.tcp}",
             "--serial", f"{self._line}:57600"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=self.stack.environment,
        )  # fmt: skip
        assert self.gateway.stderr is not None
        said = self.gateway.stderr.readline()
        self.udp, self.tcp = (int(port) for port in said.rpartition("port ")[2].split(", "))

    def _end_gateway(self) -> None:
        self.gateway.terminate()
        self.gateway.communicate()

    def restart_gateway(self) -> None:
        """End the gateway, and start it again at the same places."""
        self._end_gateway()
        self._start_gateway()

    def arm(self) -> None:
        """Arm the ship, even if somebody has control of it."""
        reply = self.client.send("arm", {}).wait(WITHIN_S)
        if reply.state != "SUCCESS":
            self.free()
            reply = self.client.send("arm", {}).wait(WITHIN_S)
        assert reply.state == "SUCCESS", reply
        until_s = monotonic() + WITHIN_S
        while not self.next_said().armed:
            assert monotonic() < until_s, "it does not say that it is armed"

    def free(self) -> None:
        """Have nobody in control of the ship."""
        for words in (("take", "--force", "--yes"), ("release",)):
            assert self.stack.ground("control", *words).status == 0

    def demand_stopped(self) -> None:
        """Fail if the ship is not stopped, or is armed again in one of the next snapshots."""
        quiet, until_s = 0, monotonic() + WITHIN_S
        for found in self.reader.follow():
            assert monotonic() < until_s, "it is armed again after its stop"
            if found is None:
                continue
            snapshot = found[0]
            assert not (quiet and snapshot.armed), "it is armed again after its stop"
            quiet += snapshot.killed and not snapshot.armed
            if quiet >= QUIET:
                return

    def go_on(self, send: Callable[[], object], *, for_s: float) -> None:
        """Do so again and again for a while, until the flight process says the next."""
        until_s = monotonic() + for_s
        while monotonic() < until_s:
            send()
            self.next_said()

    def next_said(self) -> Snapshot:
        """Return the next snapshot of the flight process itself."""
        self.mailbox.greet(link=False)
        found = self.mailbox.next_snapshot(self._said, timeout_s=WITHIN_S)
        assert found is not None, "the flight process says nothing"
        self._said = found[0]
        return found[0]

    def processes(self) -> dict[str, int]:
        """Return the process number of each by name, whatever the stack starts."""
        known = {pid: name for name, pid in self.stack.pids.items()}
        found = {known.get(pid) or _command(pid): pid for pid in children(self.stack.process.pid)}
        (audience,) = self.stack.wait_until(lambda: children(self.page.pid), within_s=WITHIN_S)
        return {**found, "page": self.page.pid, "audience": audience, "mavlink": self.gateway.pid}

    def listeners(self) -> set[str]:
        """Return what all processes listen on; see `tests.contracts.faces.listeners`."""
        return listeners(self.processes())

    def close(self) -> None:
        self._own.close()


def _command(pid: int) -> str:
    """Return the word after "-m blimp" of a command line, or its last module."""
    line = command_line(pid)
    module = line.index("-m") + 1
    return line[module + 1] if line[module] == "blimp" else line[module].rpartition(".")[2]
