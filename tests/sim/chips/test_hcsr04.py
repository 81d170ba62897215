"""The simulated HC-SR04: trigger pulse in, echo edges out."""

import statistics
from typing import Any

import pytest

from blimp.rotation import from_euler
from blimp.sim.electrical import Pull
from tests.sim.bench import Bench

TRIGGER, ECHO = 23, 24
SOUND_MPS = 340.27  # at 15 °C


class Echoes:
    """The chip with somebody on its pins."""

    def __init__(self, height_m: float) -> None:
        self.bench = Bench()
        self.bench.truth.position_ned_m = (0.0, 0.0, -height_m)
        self.chip: Any = self.bench.fit("sonar")
        self.edges: list[tuple[bool, float]] = []
        self.bench.pins.set_mode(TRIGGER, output=True, pull=Pull.OFF)
        self.bench.pins.watch(ECHO, lambda _pin, high, t_s: self.edges.append((high, t_s)))

    def ping(self, *, pulse_s: float = 12e-6, wait_s: float = 0.1) -> float | None:
        """Return the width of the echo; None where none came."""
        self.edges.clear()
        self.bench.pins.write(TRIGGER, True, held_s=1.0)
        self.bench.pins.write(TRIGGER, False, held_s=pulse_s)
        self.bench.run(wait_s)
        if not self.edges:
            return None
        (rise, rise_s), (fall, fall_s) = self.edges
        assert (rise, fall) == (True, False)
        return fall_s - rise_s


@pytest.mark.parametrize("height_m", [0.1, 1.0, 3.9])
def test_the_echo_lasts_as_long_as_sound_travels(height_m: float) -> None:
    echoes = Echoes(height_m)
    widths = [echoes.ping() for _ in range(30)]
    mean = statistics.fmean(width for width in widths if width is not None)
    assert mean * SOUND_MPS / 2.0 == pytest.approx(height_m, abs=0.004)


def test_a_short_trigger_does_nothing() -> None:
    assert Echoes(1.0).ping(pulse_s=9e-6) is None


def test_triggers_during_a_cycle_are_ignored() -> None:
    echoes = Echoes(3.0)
    for _ in range(2):
        echoes.bench.pins.write(TRIGGER, True, held_s=1.0)
        echoes.bench.pins.write(TRIGGER, False, held_s=12e-6)
        echoes.bench.run(0.005)
        assert [high for high, _ in echoes.edges] == [True]
    echoes.bench.run(0.1)
    assert [high for high, _ in echoes.edges] == [True, False]


@pytest.mark.parametrize("case", ["too far", "leaning"])
def test_nothing_comes_back(case: str) -> None:
    echoes = Echoes(5.0 if case == "too far" else 1.0)
    if case == "leaning":
        echoes.bench.truth.attitude = from_euler(0.7, 0.0, 0.0)
    assert echoes.ping() == pytest.approx(0.038)
