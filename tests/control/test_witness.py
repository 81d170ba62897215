"""Raw heights against a touchdown, family by family."""

from math import nan
from typing import Any

import msgspec
import pytest

from blimp.control.witness import Witnesses
from blimp.types import BaroSample, Contact, PositionSample, RangeSample, SensorReadings, Touch
from tests.control.parts import twin

PAD_PA = 101325.0


def readings(
    now_s: float,
    *,
    ranger_m: float | None = None,
    sonar_m: float | None = None,
    baro_m: float | None = None,
    tag_m: float | None = None,
    unhealthy: tuple[str, ...] = (),
) -> SensorReadings:
    def range_of(value: float | None) -> RangeSample | None:
        return None if value is None else RangeSample(t_s=now_s, distance_m=value)

    baro, tag = None, None
    if baro_m is not None:
        pressure = PAD_PA - 12.0 * baro_m
        baro = BaroSample(t_s=now_s, pressure_pa=pressure, temperature_c=15.0)
    if tag_m is not None:
        tag = PositionSample(t_s=now_s, position_ned_m=(0.0, 0.0, -tag_m), accuracy_m=0.1)
    return SensorReadings(
        t_s=now_s, ranger=range_of(ranger_m), sonar=range_of(sonar_m), baro=baro, tag=tag,
        unhealthy=unhealthy,
    )  # fmt: skip


def see(
    witnesses: Witnesses,
    said: SensorReadings,
    now_s: float,
    *,
    height_m: float = 0.0,
    climb_mps: float = 0.0,
    known: bool = True,
    believed: Contact = Contact.AIRBORNE,
    driven: bool = True,
) -> Touch:
    return witnesses.update(
        said, now_s=now_s, height_m=height_m, climb_mps=climb_mps, known=known, believed=believed,
        driven=driven,
    )  # fmt: skip


def standing(rest_m: float = 0.0) -> Witnesses:
    """Ten seconds on the pad, at rest. rest_m: what its ranger reads there."""
    devices = tuple(
        msgspec.structs.replace(row, options={"rest_m": rest_m}) if row.name == "ranger" else row
        for row in twin().device
    )
    witnesses = Witnesses(airframe=msgspec.structs.replace(twin(), device=devices))
    for k in range(100):
        now_s = 0.1 * k
        see(witnesses, readings(now_s, baro_m=0.0, tag_m=0.0), now_s, driven=False)
    return witnesses


@pytest.mark.parametrize(
    ("said", "doubt"),
    [
        ({"baro_m": 0.1, "tag_m": 0.1}, ""),
        ({"ranger_m": 0.22, "baro_m": 0.3, "tag_m": 0.1}, ""),
        # A ranger stuck, with the sonar stuck beside it: one family, one voice.
        ({"ranger_m": 0.22, "baro_m": 7.6, "tag_m": 7.6}, "baro says 7.6 m, tag says 7.6 m"),
        (
            {"ranger_m": 0.22, "sonar_m": 0.22, "baro_m": 35.0, "tag_m": 35.0},
            "baro says 35.0 m, tag says 35.0 m",
        ),
        # One against one is no touchdown.
        ({"ranger_m": 0.1, "baro_m": 7.6}, "baro says 7.6 m"),
        ({"baro_m": -3.0}, "baro says -3.0 m"),  # it lies: it says nothing of the ground
        # The barometer drifts: what looks down and the tag outnumber it.
        ({"ranger_m": 0.22, "baro_m": 9.0, "tag_m": 0.1}, ""),
        ({"ranger_m": 0.22, "baro_m": 9.0, "tag_m": float("nan")}, "baro says 9.0 m"),
        ({"ranger_m": 0.22, "baro_m": 9.0, "unhealthy": ("baro",)}, ""),
        (
            {"ranger_m": 0.22, "baro_m": 9.0, "tag_m": 0.1, "unhealthy": ("tag",)},
            "baro says 9.0 m",
        ),
        (
            {"ranger_m": 0.22, "baro_m": 9.0, "tag_m": 0.1, "unhealthy": ("ranger",)},
            "baro says 9.0 m",
        ),
        ({}, ""),  # nobody sees anything: the mode's business
    ],
)
def test_those_against_must_be_outnumbered(said: dict[str, float], doubt: str) -> None:
    witnesses = standing()
    see(witnesses, readings(20.0, **said), 20.0)  # type: ignore[arg-type]
    assert witnesses.touch.doubt == doubt


@pytest.mark.parametrize(
    ("said", "carried"),
    [
        ({"baro_m": 0.1}, False),  # no family decides alone
        ({"tag_m": 0.0}, False),
        ({"baro_m": 0.1, "tag_m": 0.1}, True),
        ({"ranger_m": 0.05, "baro_m": 9.0, "tag_m": 0.1}, True),
        ({"ranger_m": 0.05, "baro_m": 9.0}, False),
        # A frozen ranger and a light ship that rises off its pad.
        ({"ranger_m": 0.05, "baro_m": 0.8}, False),
        ({"ranger_m": 0.5, "baro_m": 0.5, "tag_m": 0.5}, False),
        ({"ranger_m": 1.0, "baro_m": 1.0, "tag_m": 1.0}, False),
        ({"ranger_m": 0.05, "baro_m": 9.0, "tag_m": 9.0}, False),
        ({}, False),
    ],
)
def test_the_ground_carries_a_ship_if_two_families_say_so(
    said: dict[str, float], carried: bool
) -> None:
    witnesses = standing()
    see(witnesses, readings(20.0, **said), 20.0)  # type: ignore[arg-type]
    assert witnesses.touch.carried is carried


def test_a_ship_that_hovers_low_leaves_the_ground_after_a_second() -> None:
    """It had touched the ground all flight, as nothing said that it did not: never weighed."""
    witnesses = standing()
    said = {
        now_s: readings(now_s, ranger_m=0.5, baro_m=0.5, tag_m=0.5)
        for now_s in (10.5, 11.0, 11.5, 12.0)
    }
    found = []
    for now_s, one in said.items():
        see(witnesses, one, now_s)
        found.append(witnesses.touch.carried)
    assert found == [True, *[False] * 3]


def test_a_clock_that_goes_back_keeps_no_old_range() -> None:
    """Before, what was seen last counted until the clock had caught up."""
    witnesses = standing()
    see(witnesses, readings(50.0, ranger_m=0.22, tag_m=0.2), 50.0)
    see(witnesses, readings(20.0, ranger_m=5.0, tag_m=5.0), 20.0)
    assert witnesses.heights_m["range"] > 4.0
    assert "range says" in witnesses.touch.doubt


def test_what_was_said_a_second_ago_counts_for_nothing() -> None:
    witnesses = standing()
    said = readings(20.0, ranger_m=2.0, baro_m=5.0, tag_m=5.0)
    see(witnesses, said, 20.9)
    assert sorted(witnesses.heights_m) == ["baro", "range", "tag"]
    see(witnesses, said, 21.1)
    assert witnesses.heights_m == {}


def test_a_ranger_that_is_blind_near_the_ground_counts_for_half_a_minute() -> None:
    witnesses = standing()
    see(witnesses, readings(20.0, ranger_m=0.25, tag_m=0.2), 20.0)
    blind = readings(49.0, ranger_m=nan, baro_m=3.0, tag_m=0.1)
    see(witnesses, blind, 49.0)
    assert witnesses.touch.doubt == ""
    assert witnesses.touch.carried, "nearer than it sees"
    still_blind = readings(90.0, baro_m=3.0, tag_m=0.1)
    see(witnesses, still_blind, 90.0)
    assert witnesses.touch.carried, "it has not been seen to rise"
    outlier = readings(90.1, baro_m=3.0, tag_m=-0.7)
    see(witnesses, outlier, 90.1)
    assert witnesses.touch.carried
    risen = readings(90.3, baro_m=3.0, tag_m=3.0)
    see(witnesses, risen, 90.3)
    see(witnesses, readings(90.4, baro_m=3.1, tag_m=3.1), 90.4)
    assert sorted(witnesses.heights_m) == ["baro", "tag"]


def test_heights_are_those_above_the_pad() -> None:
    """A ship that drifts up, unpowered, must not make its height the pad's."""
    witnesses = standing(rest_m=0.05)
    witnesses.declare(down=False)
    for k in range(30):
        now_s = 20.0 + 0.1 * k
        said = readings(now_s, ranger_m=3.05, baro_m=3.0)
        see(witnesses, said, now_s, height_m=3.0, climb_mps=0.3, driven=False)
    assert witnesses.heights_m == pytest.approx({"range": 3.0, "baro": 3.0}, abs=0.02)


def down_after(
    witnesses: Witnesses, height_m: float, climb_mps: float, seconds: float, **said: float
) -> bool:
    """Whether it is down after so long at that height and climb, from 100 s on."""
    for step in range(round(seconds / 0.01) + 1):
        now_s = 100.0 + 0.01 * step
        heard = readings(now_s, **said)  # type: ignore[arg-type]
        see(witnesses, heard, now_s, height_m=height_m, climb_mps=climb_mps)
    return witnesses.down


def test_it_is_up_after_a_tenth_of_a_second_clearly_above_its_feet() -> None:
    assert down_after(Witnesses(airframe=twin()), 0.3, 0.5, 9.0)
    assert down_after(Witnesses(airframe=twin()), 0.4, 0.5, 0.08)
    assert not down_after(Witnesses(airframe=twin()), 0.4, 0.5, 0.12)


def test_a_height_that_lies_alone_lifts_no_ship_off_its_pad() -> None:
    witnesses = standing()
    assert down_after(witnesses, 0.7, 0.2, 5.0, baro_m=0.0, tag_m=0.0)
    assert not down_after(witnesses, 0.7, 0.2, 1.2)


def test_a_ship_that_rises_is_up_before_it_is_out_of_reach() -> None:
    """Its raw heights had agreed on the ground a second ago: a light one was up at 0.9 m."""
    witnesses = standing()
    for step in range(130):
        height_m = 0.005 * step  # at 0.5 m/s, to 0.65 m
        now_s = 10.0 + 0.01 * step
        said = readings(now_s, ranger_m=height_m, baro_m=height_m, tag_m=height_m)
        if not see(witnesses, said, now_s, height_m=height_m, climb_mps=0.5).on_ground:
            break
    assert not witnesses.down


def test_it_is_down_after_half_a_second_low_and_slow() -> None:
    for height_m, climb_mps, seconds, down in (
        (0.1, 0.1, 0.52, True),
        (0.1, 0.1, 0.48, False),
        (0.2, 0.0, 9.0, False),
        (0.1, -0.2, 9.0, False),
        (0.1, 0.2, 9.0, False),
    ):
        witnesses = Witnesses(airframe=twin())
        witnesses.declare(down=False)
        assert down_after(witnesses, height_m, climb_mps, seconds) is down


LOW, HIGH = {"height_m": 0.0}, {"height_m": 3.0, "climb_mps": 0.2}


@pytest.mark.parametrize(
    ("down", "seen", "contact"),
    [
        (True, {**LOW, "driven": False}, Contact.RESTING),
        (True, LOW, Contact.TOUCHING),
        (True, {**LOW, "believed": Contact.PRESSED}, Contact.PRESSED),
        (False, HIGH, Contact.AIRBORNE),
        # A landing has it on the ground, and only its barometer goes on rising.
        (False, {**HIGH, "believed": Contact.RESTING}, Contact.RESTING),
        (False, {**HIGH, "known": False}, Contact.UNKNOWN),
        (False, {**HIGH, "believed": Contact.UNKNOWN}, Contact.UNKNOWN),
        (False, {**HIGH, "driven": False}, Contact.AIRBORNE),  # it drifts up
        (False, {"height_m": 1.2, "driven": False}, Contact.HELD),
        (False, {"height_m": 1.2}, Contact.AIRBORNE),  # it hovers
    ],
)
def test_each_contact_has_its_evidence(down: bool, seen: dict[str, Any], contact: Contact) -> None:
    witnesses = Witnesses(airframe=twin())
    witnesses.declare(down=down)
    for step in range(40):
        found = see(witnesses, readings(0.1 * step), 0.1 * step, **seen)
    assert found.contact is contact
    on_ground = {Contact.TOUCHING, Contact.RESTING, Contact.PRESSED}
    assert found.on_ground is (contact in on_ground)


def test_two_families_that_see_it_on_the_ground_against_its_height_leave_it_unknown() -> None:
    witnesses = standing()
    witnesses.declare(down=False)
    said = readings(10.5, baro_m=0.0, tag_m=0.0)
    assert see(witnesses, said, 10.5, height_m=3.0, climb_mps=0.2).contact is Contact.UNKNOWN
