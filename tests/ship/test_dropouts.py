"""A glitch of a bus or of a sensor is not the end of a flight."""

import pytest

from blimp import airframe as airframes
from blimp.ship.dropouts import ends
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import on_the_way
from blimp.types import OutcomeState


@pytest.mark.parametrize(
    ("airframe", "mode", "kind", "ends_in"),
    [
        ("hobby", "takeoff", "bus_stuck", "LOITER, armed"),
        pytest.param("twin", "loiter", "no_answer", "LOITER, armed", marks=pytest.mark.long),
        ("blimp2b", "hold", "frozen", "HOLD, armed"),
    ],
)
def test_a_second_without_an_imu_ends_no_mode(
    airframe: str, mode: str, kind: str, ends_in: str
) -> None:
    with on_the_way(airframes.load(airframe), mode, 1) as ship:
        assert ends(ship, "imu", kind, 1.0, [ends_in]) == ""


def test_glitches_that_repeat_end_no_mode_and_accuse_nothing() -> None:
    with on_the_way(airframes.load("gtmab"), "hold", 1) as ship:
        for _ in range(20):
            assert ends(ship, "imu", "bus_stuck", 0.1, ["HOLD, armed"], watch_s=0.9) == ""
        assert ship.state.position_valid


def test_a_bus_that_hangs_takes_little_of_the_loops_time() -> None:
    with on_the_way(airframes.load("gtmab"), "hold", 1) as ship:
        ship.fault("imu", "bus_stuck")
        began_s = ship.now_s
        ship.step_cycles(100)
        assert ship.now_s - began_s < 1.3


def test_an_imu_that_is_silent_at_the_arm_refuses_it_and_after_the_glitch_arms() -> None:
    with Lockstep("gtmab") as ship:
        ship.fault("imu", "bus_stuck")
        ship.step(0.5)
        refused = ship.command("arm", check=False)
        assert refused.state is OutcomeState.REFUSED
        assert "imu" in refused.reason
        ship.fault("imu", "clear")
        ship.step(0.5)
        assert ship.command("arm").state is OutcomeState.DONE
