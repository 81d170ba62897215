"""Missions for programs with threads: `ground`, the demo."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from blimp.actions import START_TTL_S
from ground_station.flyer import Flyer, MissionEvent, MissionResult
from ground_station.following import OUTAGE_S, CommandListener, follow
from ground_station.mission_file import Mission
from ground_station.plain import Ship

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.client import VehicleClient
    from blimp.tasks.reply import Reply

T = TypeVar("T")


class MissionRunner(CommandListener):
    """Flies one mission, once, by the `Flyer`. `run` may be called from any thread.

    client: the ship, or a bare connection to its broker. on_event: called with every step, in any
    thread while that of `run` waits. outage_s, timeout_s: see `Flyer`.
    """

    def __init__(
        self,
        *,
        client: Ship | VehicleClient,
        mission: Mission,
        clock: Clock,
        on_event: Callable[[MissionEvent], object] = lambda _: None,
        outage_s: float = OUTAGE_S,
        timeout_s: float | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._outage_s = outage_s
        self._last: tuple[str, float | None] | None = None  # that was heard
        self._flyer = Flyer(
            self, mission, on_event=on_event, outage_s=outage_s, timeout_s=timeout_s
        )

    def run(self) -> MissionResult:
        """See `Flyer.fly`. Raises nothing that the link does."""
        return _at_once(self._flyer.fly())

    # --- the flyer's way: it waits in this thread ------------------------------------------

    async def command(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> Reply:
        self._last = None
        if isinstance(self._client, Ship):
            return self._client.command(name, arguments, timeout_s=timeout_s, listener=self)
        ttl_s = min(START_TTL_S, timeout_s)
        with closing(self._client.send(name, arguments, ttl_s=ttl_s)) as sent:
            return follow(
                sent, client=self._client, clock=self._clock, within_s=timeout_s,
                outage_s=self._outage_s, listener=self,
            )  # fmt: skip

    def now_s(self) -> float:
        return self._clock.now_s()

    async def sleep(self, seconds: float) -> None:
        self._clock.sleep_until(self._clock.now_s() + seconds)

    def progress(self, stage: str, fraction: float | None) -> None:
        if stage == "queued" or (stage, fraction) == self._last:
            return
        self._last = stage, fraction
        if stage.startswith("waits: "):
            self._flyer.hear("executing", reason=stage)
        else:
            self._flyer.hear(stage, fraction)

    def outage(self, reason: str) -> None:
        self._flyer.hear("waiting", reason=reason)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends; Ctrl-C is raised in the middle of it."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("what waits in this thread has suspended")
