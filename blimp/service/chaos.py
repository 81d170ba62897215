"""Faults in a simulated stack that runs, each undone by itself, with how long it took to be back.

Each action blocks until everything works again, so it runs in a thread of its own. The ship is not
asked: what it does about a fault is in its telemetry.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.service.stack_process import StackProcess
from blimp.sim.remote import RemoteWorld

BACK_WITHIN_S = 30.0
OUTAGE_S = 5.0
POSITION_SENSORS = ("tag", "gps", "mocap")


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and how long the part that it hit did not work."""

    action: str
    down_s: float


class Chaos:
    """Does harm to one ship's stack. devices: the names of its airframe's devices."""

    def __init__(
        self,
        *,
        stack: StackProcess,
        broker: str,
        world: Path,
        devices: tuple[str, ...],
        clock: Clock,
    ) -> None:
        self._stack = stack
        self._broker = broker
        self._world = world
        self._devices = devices
        self._clock = clock

    @property
    def actions(self) -> dict[str, Callable[[], ChaosReport]]:
        """Every action by its name."""
        return {
            "kill-worker": lambda: self._kill("worker"),
            "kill-flight": lambda: self._kill("flight"),
            "stop-broker": self._stop_broker,
            "cut-link": self._cut_link,
            "blind-position": self._blind_position,
        }

    def _kill(self, process: str) -> ChaosReport:
        """Kill a process as a crash would; the supervisor starts it again."""

        def is_back(event: dict[str, Any]) -> bool:
            return event["event"] == "restarted" and bool(event["process"] == process)

        seen = len(self._stack.events)
        os.kill(self._stack.pid_of(process), signal.SIGKILL)
        event = self._stack.wait_for(is_back, after=seen, within_s=BACK_WITHIN_S)
        return ChaosReport(action=f"kill-{process}", down_s=event["down_s"])

    def _stop_broker(self) -> ChaosReport:
        """Stop the broker's process: connections stand, and nobody answers on them."""
        pid = self._stack.pid_of("broker")
        os.kill(pid, signal.SIGSTOP)
        try:
            self._clock.sleep_until(self._clock.now_s() + OUTAGE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        return ChaosReport(action="stop-broker", down_s=OUTAGE_S)

    def _cut_link(self) -> ChaosReport:
        """Have the broker serve nobody for a while, as a radio link that carries nothing."""
        from blimp.queue.redis.client import open_redis

        with open_redis(self._broker, timeout_s=2.0) as redis:
            redis.client_pause(int(1e3 * OUTAGE_S))
        self._clock.sleep_until(self._clock.now_s() + OUTAGE_S)
        return ChaosReport(action="cut-link", down_s=OUTAGE_S)

    def _blind_position(self) -> ChaosReport:
        """Let no position sensor answer for a while, indoors nor outdoors."""
        blinded = [name for name in POSITION_SENSORS if name in self._devices]
        if not blinded:
            raise BlimpError(f"this ship has none of {', '.join(POSITION_SENSORS)}")
        with RemoteWorld(self._world) as world:
            for name in blinded:
                world.fault(name, "no_answer")
            try:
                self._clock.sleep_until(self._clock.now_s() + OUTAGE_S)
            finally:
                for name in blinded:
                    world.fault(name, "clear")
        return ChaosReport(action="blind-position", down_s=OUTAGE_S)
