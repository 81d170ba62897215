"""Lockstep's contract: determinism, commands, faults, and the kernel seam for other drivers."""

from collections.abc import Iterator

import pytest

from blimp.errors import AirframeError, ConfigError, Refused
from blimp.rotation import yaw_of
from blimp.ship import Lockstep
from blimp.types import Command, OutcomeState, Snapshot, VehicleState

pytestmark = pytest.mark.long  # seconds of computing each


@pytest.fixture
def ship() -> Iterator[Lockstep]:
    with Lockstep(airframe="twin", seed=1, wind_mps=0.0) as ship:
        yield ship


def flown(seed: int) -> tuple[VehicleState, Snapshot, dict[str, float]]:
    with Lockstep("twin", seed=seed, wind_mps=0.3) as ship:
        ship.command("arm")
        ship.command("takeoff", altitude_m=2.0)
        ship.step(12.0)
        ship.fault("tag", "garbage")
        ship.step(4.0)
        return ship.truth, ship.snapshot(), ship.world.outputs


def test_the_same_seed_flies_the_same_way_to_the_bit_and_another_does_not() -> None:
    truth, snapshot, outputs = flown(seed=5)
    again = flown(seed=5)
    assert again[0] == truth  # floats compared exactly
    assert again[2] == outputs
    assert again[1].position_ned_m == snapshot.position_ned_m
    assert again[1].sensors == snapshot.sensors
    assert flown(seed=6)[0] != truth


def test_it_stands_ready_on_its_pad_and_time_moves_only_by_steps(ship: Lockstep) -> None:
    assert ship.truth.on_ground
    assert ship.truth.altitude_m == pytest.approx(0.0, abs=0.01)
    before_s = ship.now_s
    ship.step(0.5)
    assert ship.now_s - before_s == pytest.approx(0.5)
    assert ship.command("arm").state is OutcomeState.DONE


def test_commands_are_accepted_followed_refused_and_remembered(ship: Lockstep) -> None:
    refused = ship.command("takeoff", check=False, altitude_m=2.0)
    assert refused.state is OutcomeState.REFUSED
    assert "arm" in refused.reason
    ship.command("arm")
    takeoff = ship.command("takeoff", altitude_m=2.0)
    assert takeoff.state is OutcomeState.IN_PROGRESS
    ship.step(30.0)
    assert ship.outcome(takeoff.id).state is OutcomeState.DONE
    assert ship.truth.altitude_m == pytest.approx(2.0, abs=0.3)
    goto = ship.complete("goto", north_m=-3.0, east_m=0.0, altitude_m=2.0, within_s=60.0)
    assert goto.state is OutcomeState.DONE
    assert ship.truth.position_ned_m[0] == pytest.approx(-3.0, abs=0.5)
    again = ship.deliver(Command(id=takeoff.id, name="takeoff", arguments={"altitude_m": 9.0}))
    assert again.state is OutcomeState.DONE  # its first outcome: nothing moves
    ship.step(5.0)
    assert ship.truth.altitude_m == pytest.approx(2.0, abs=0.3)
    with pytest.raises(KeyError):
        ship.outcome("never given")


def test_a_refusal_is_raised_unless_check_is_false(ship: Lockstep) -> None:
    with pytest.raises(Refused, match="arm"):
        ship.command("takeoff", altitude_m=2.0)
    with pytest.raises(Refused, match="arm"):
        ship.complete("takeoff", within_s=5.0, altitude_m=2.0)
    refused = ship.complete("takeoff", within_s=5.0, check=False, altitude_m=2.0)
    assert refused.state is OutcomeState.REFUSED


def test_unknown_names_are_reported_with_the_known_ones(ship: Lockstep) -> None:
    unknown = ship.command("barrel_roll", check=False)
    assert unknown.state is OutcomeState.REFUSED
    assert "barrel_roll" in unknown.reason
    with pytest.raises(ConfigError, match=r"warp_core.*imu"):
        ship.fault("warp_core", "no_answer")
    with pytest.raises(ConfigError, match=r"haunted.*no_answer"):
        ship.fault("imu", "haunted")
    with pytest.raises(AirframeError, match=r"zeppelin.*gtmab, .*twin"):
        Lockstep(airframe="zeppelin")


def test_a_fault_is_seen_by_the_flight_software_and_clear_mends_it(ship: Lockstep) -> None:
    ship.fault("baro", "no_answer")
    ship.step(1.0)
    sick = ship.snapshot().sensors["baro"]
    assert not sick.healthy
    assert sick.error
    refused = ship.command("arm", check=False)
    assert refused.state is OutcomeState.REFUSED
    assert "baro" in refused.reason
    ship.fault("baro", "clear")
    ship.step(3.0)
    assert ship.snapshot().sensors["baro"].healthy
    assert ship.command("arm").state is OutcomeState.DONE


def test_a_ship_that_is_held_at_its_pad_does_not_lift_and_says_so() -> None:
    with Lockstep("twin", seed=1, wind_mps=0.3) as ship:
        ship.hold(True)
        ship.command("arm")
        where = ship.truth.position_ned_m
        refused = ship.complete("takeoff", altitude_m=2.0, within_s=30.0, check=False)
        assert refused.state is OutcomeState.REFUSED
        assert "does not lift in 20 s: too heavy, held" in refused.reason
        assert ship.truth.position_ned_m == where
        ship.hold(False)
        assert ship.complete("takeoff", altitude_m=2.0, within_s=30.0).state is OutcomeState.DONE
        assert ship.truth.altitude_m > 1.5


def test_a_ship_that_wind_turns_on_its_pad_arms_once_somebody_has_held_it() -> None:
    """Before, it armed, its heading 40 degrees wrong, and flew off downwind."""
    with Lockstep("twin", seed=2, wind_mps=0.5) as ship:
        ship.step(20.0)
        with pytest.raises(Refused, match="heading: not known; if wind has turned"):
            ship.command("arm")
        ship.hold(True)
        ship.step(5.0)
        ship.hold(False)
        ship.command("arm")
        believed_rad, true_rad = ship.snapshot().attitude_rad.yaw, yaw_of(ship.truth.attitude)
        assert abs(true_rad) > 0.5
        assert believed_rad == pytest.approx(true_rad, abs=0.1)


def test_a_lost_link_is_held_then_returned_then_come_down() -> None:
    with Lockstep("twin", seed=2) as ship:
        ship.command("arm")
        ship.complete("takeoff", altitude_m=2.0, within_s=40.0)
        ship.link_up = False
        seen: list[str] = []
        for _ in range(200):
            ship.step(1.0)
            failsafe = ship.snapshot().failsafe
            if failsafe and (not seen or seen[-1] != failsafe):
                seen.append(failsafe)
            if not ship.snapshot().armed:
                break
        assert [words.split(":")[0] for words in seen] == ["link lost"] * len(seen)
        assert [word for words in seen for word in ("hold", "return", "land") if word in words] == [
            "hold", "return", "land",
        ]  # fmt: skip
        assert ship.truth.on_ground
        assert ship.world.physics.touchdown_speed_mps <= 0.5
