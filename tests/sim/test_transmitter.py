"""Flights by a simulated CRSF receiver, with chips and drivers: the fault "stuck" moves a stick."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import hypot
from typing import Any

import msgspec
import pytest

from blimp.airframe import Airframe, Transmitter
from blimp.ship.lockstep import Lockstep
from tests.contracts import rows

pytestmark = pytest.mark.long

MANUAL: Any = {
    "left": {"forward": 1.0},
    "right": {"forward": 1.0},
    "tilt": {"up": 1.0},
    "tail": {"turn": 1.0},
}
# Forward, right, up and turn as most transmitters have them; the switches behind.
CHANNELS = {"right": 1, "forward": 2, "up": 3, "turn": 4, "arm": 5, "modes": 6, "stop": 7}


def ship(*modes: str, chip: str = "crsf") -> Airframe:
    """The twin with a receiver; the mode switch is low for ALTHOLD, and then for `modes`."""
    table = Transmitter(mode_names=("ALTHOLD", *modes), manual=MANUAL)
    return msgspec.structs.replace(rows.ship(chip), transmitter=table)


class Radio(Lockstep):
    moved: dict[str, float] | None = None

    def move(self, seconds: float = 0.1, /, **shares: float) -> None:
        self.moved = {**(self.moved or {}), **shares}
        for name, value in shares.items():
            self.fault("transmitter", "stuck", channel=f"ch{CHANNELS[name]}", value=value)
        self.step(seconds)

    def back(self) -> None:
        """Let the receiver hear the transmitter again, as it was."""
        self.fault("transmitter", "clear")
        self.move(0.3, **(self.moved or {}))


@contextmanager
def flying(*modes: str) -> Iterator[Radio]:
    """Armed and lifted by its stick in ALTHOLD, 1 to 2 m up."""
    with Radio(ship(*modes), seed=1, wind_mps=0.1) as made:
        made.step(0.5)
        made.move(arm=1.0)
        made.move(6.0, up=1.0)
        made.move(2.0, up=0.0)
        assert made.truth.altitude_m > 0.5
        yield made


@pytest.mark.parametrize(
    "modes", [("STABILIZE", "MANUAL"), ("LOITER", "VELOCITY"), ("HOLD", "RTL")]
)
def test_lost_it_holds_and_heard_again_it_goes_on(modes: tuple[str, str]) -> None:
    """By a dead receiver, one that repeats its last frame, and one that says so."""
    with flying(*modes) as made:
        losses = ("frozen", "no_answer", "unlinked")
        for mode, place, loss in zip(("ALTHOLD", *modes), (-1.0, 0.0, 1.0), losses, strict=True):
            made.move(0.5, modes=place, forward=0.3)
            assert made.snapshot().mode == mode
            made.fault("transmitter", loss)
            made.step(1.7)
            lost = made.snapshot()
            assert lost.failsafe == "transmitter lost: holding"
            assert lost.mode == (mode if mode == "RTL" else "HOLD")
            made.step(3.0)
            assert 0.2 <= made.truth.altitude_m < 6.0
            assert hypot(*made.truth.velocity_ned_mps) < 0.5
            made.back()
            assert (made.snapshot().failsafe, made.snapshot().mode) == ("", mode)


@pytest.mark.parametrize(
    ("kind", "error"), [("garbage", "cannot be read"), ("frozen", "no link statistics for 1 s")]
)
def test_garbage_and_repeated_frames_move_nothing_and_are_said(kind: str, error: str) -> None:
    with Radio(ship("LAND"), seed=1) as made:
        made.step(0.5)
        made.fault("transmitter", kind)
        made.step(3.0)
        assert not made.armed
        assert error in made.snapshot().sensors["transmitter"].error


def test_a_stick_reaches_the_motor_within_30_ms_at_p99() -> None:
    """From the stick to the throttle on the chip's pins, at many places between two frames."""
    with flying("MANUAL") as made:
        made.move(0.5, modes=1.0, forward=0.3)
        took = []
        share = 0.3
        for k in range(120):
            made.step_cycles(3 + k % 7)
            made.world.advance(0.0013 * (k % 8))  # a stick moves at any time
            share = 0.9 if share < 0.5 else 0.3
            before = made.world.electronics.throttles()[0]
            made.move(0.0 + 1e-9, forward=share)
            began_s = made.now_s - 0.01
            while made.world.electronics.throttles()[0] == before:
                made.step_cycles(1)
                assert made.now_s - began_s < 0.2
            took.append(made.now_s - began_s)
        took.sort()
        assert took[int(0.99 * len(took))] <= 0.030


def test_an_sbus_receiver_flies_it_too() -> None:
    with Radio(ship("LAND", chip="sbus"), seed=1) as made:
        made.step(0.5)
        made.move(arm=1.0)
        made.move(8.0, up=1.0)
        assert made.truth.altitude_m > 1.0
        made.move(0.02, stop=1.0)
        made.step(0.03)
        assert made.snapshot().killed
