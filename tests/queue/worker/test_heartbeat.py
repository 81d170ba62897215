"""The worker's pulse: what it tells, and how often."""

from __future__ import annotations

import threading

from blimp.queue.worker.heartbeat import Heartbeat, NameInUse
from tests.queue.conftest import DEADLINE_S, Silence


def test_a_lost_name_is_told_once() -> None:
    """Told again while the worker stops, its warm stop would be cut short."""
    stopping = threading.Event()
    many = threading.Event()
    told: list[str] = []
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            many.set()
        raise NameInUse("another has it", certain=True)

    def lose(reason: str) -> None:
        told.append(reason)
        stopping.set()

    heartbeat = Heartbeat(
        beat=beat,
        watchers=(),
        on_lost_name=lose,
        stopping=stopping,
        wake=lambda: None,
        log=Silence(),
    )
    heartbeat.start()
    assert many.wait(DEADLINE_S)
    heartbeat.close()
    assert told == ["another has it"]
