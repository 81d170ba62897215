"""Flights by a simulated CRSF receiver, with chips and drivers: the fault "stuck" moves a stick."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from blimp.airframe import Airframe, Transmitter
from blimp.hardware.registers import CRSF
from blimp.sim.chips.crsf import Crsf
from blimp.sim.lockstep import Lockstep
from tests.contracts import rows

MANUAL: Any = {
    "left": {"forward": 1.0},
    "right": {"forward": 1.0},
    "tilt": {"up": 1.0},
    "tail": {"turn": 1.0},
}
# Forward, right, up and turn as most transmitters have them; the switches behind.
CHANNELS = {"right": 1, "forward": 2, "up": 3, "turn": 4, "arm": 5, "modes": 6, "stop": 7}


def ship(mode: str = "ALTHOLD", chip: str = "crsf") -> Airframe:
    """The twin with a receiver; the mode switch is low for ALTHOLD and high for `mode`."""
    table = Transmitter(mode_names=("ALTHOLD", mode), manual=MANUAL)
    return msgspec.structs.replace(rows.ship(chip), transmitter=table)


class Radio(Lockstep):
    def move(self, seconds: float = 0.1, /, **shares: float) -> None:
        for name, value in shares.items():
            self.fault("transmitter", "stuck", channel=f"ch{CHANNELS[name]}", value=value)
        self.step(seconds)


@contextmanager
def flying(mode: str, *, up_s: float = 8.0) -> Iterator[Radio]:
    """Armed and lifted by its stick in ALTHOLD, 2 to 3 m up, then in `mode`."""
    with Radio(ship(mode), seed=1, wind_mps=0.1) as made:
        made.step(0.5)
        made.move(arm=1.0)
        made.move(up_s, up=1.0)
        made.move(4.0, up=0.0)
        made.move(0.5, modes=1.0, forward=0.3)
        yield made


MODES = ("MANUAL", "STABILIZE", "ALTHOLD", "VELOCITY", "LOITER", "HOLD", "RTL", "LAND")


@pytest.mark.parametrize("mode", MODES)
def test_transmitter_lost_it_holds_or_goes_on_with_what_is_safer(mode: str) -> None:
    """Row "transmitter": the ground is there, so the ship waits for it, under control."""
    with flying(mode) as made:
        assert made.snapshot().mode == mode
        made.fault("transmitter", "no_answer")
        made.step(0.7)
        after = made.snapshot()
        assert after.failsafe == "transmitter lost: holding"
        assert after.mode == (mode if mode in ("RTL", "LAND") else "HOLD")
        made.step(15.0)
        assert made.snapshot().failsafe in ("transmitter lost: holding", "")
        assert 0.0 <= made.truth.altitude_m < 6.0
        made.complete("land", within_s=90.0, check=False)
        made.step(5.0)
        assert made.truth.altitude_m < 0.3
        assert made.world.physics.touchdown_speed_mps <= 0.5


@pytest.mark.parametrize("mode", MODES)
def test_both_lost_it_comes_home_and_down(mode: str) -> None:
    with flying(mode) as made:
        made.fault("transmitter", "unlinked")
        made.link_up = False
        seen = set()
        for _ in range(100):
            made.step(1.0)
            seen.add(made.snapshot().failsafe)
        assert "transmitter lost: holding" in seen
        if mode not in ("RTL", "LAND"):
            assert "link lost: returning" in seen
        made.step(30.0)
        assert made.truth.altitude_m < 0.3
        assert made.world.physics.touchdown_speed_mps <= 0.5
        assert not any(made.world.electronics.throttles())


@pytest.mark.parametrize("link_up", [True, False])
def test_lost_on_the_pad_no_motor_starts(link_up: bool) -> None:
    with Radio(ship(), seed=1) as made:
        made.step(0.5)
        made.move(arm=1.0)
        made.fault("transmitter", "no_answer")
        made.link_up = link_up
        for _ in range(70):
            made.step(1.0)
            assert not any(made.world.electronics.throttles())


def test_the_broker_lost_with_the_transmitter_alive_is_no_link_loss() -> None:
    with flying("ALTHOLD") as made:
        made.link_up = False
        for _ in range(40):
            made.step(1.0)
            assert made.snapshot().failsafe == ""
        assert made.snapshot().mode == "ALTHOLD"


@pytest.mark.parametrize("kind", ["garbage", "frozen"])
def test_garbage_moves_nothing_and_is_said(kind: str) -> None:
    """Frozen sticks are sticks that are held still: nothing to see, nothing that jumps."""
    with Radio(ship(), seed=1) as made:
        made.step(0.5)
        made.fault("transmitter", kind)
        made.step(3.0)
        status = made.snapshot().sensors["transmitter"]
        assert not made.armed
        assert status.healthy == (kind == "frozen")
        assert ("cannot be read" in status.error) == (kind == "garbage")


def test_a_stick_reaches_the_motor_within_30_ms_at_p99() -> None:
    """From the stick to the throttle on the chip's pins, at many places between two frames."""
    with flying("MANUAL") as made:
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


def test_battery_attitude_and_mode_go_back() -> None:
    with flying("ALTHOLD") as made:
        chip = made.world.electronics.chip("transmitter")
        assert isinstance(chip, Crsf)
        snapshot = made.snapshot()
        assert chip.telemetry[CRSF.FLIGHT_MODE] == b"ALTHOLD\0"
        volts = int.from_bytes(chip.telemetry[CRSF.BATTERY][:2], "big") / 10.0
        assert volts == pytest.approx(snapshot.battery_v, abs=0.11)
        yaw = int.from_bytes(chip.telemetry[CRSF.ATTITUDE][4:], "big", signed=True) / 1e4
        assert yaw == pytest.approx(snapshot.attitude_rad.yaw, abs=0.05)


def test_an_sbus_receiver_flies_it_too() -> None:
    with Radio(ship(chip="sbus"), seed=1) as made:
        made.step(0.5)
        made.move(arm=1.0)
        made.move(8.0, up=1.0)
        assert made.truth.altitude_m > 1.0
        made.move(0.02, stop=1.0)
        made.step(0.03)
        assert made.snapshot().killed
