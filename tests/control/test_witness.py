"""Raw heights against a touchdown, family by family."""

from math import nan

import msgspec
import pytest

from blimp.control.contact import Contact
from blimp.control.witness import Witnesses
from blimp.types import BaroSample, PositionSample, RangeSample, SensorReadings
from tests.control.parts import at, twin

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


def standing(rest_m: float = 0.0) -> Witnesses:
    """Ten seconds on the pad, at rest. rest_m: what its ranger reads there."""
    devices = tuple(
        msgspec.structs.replace(row, options={"rest_m": rest_m}) if row.name == "ranger" else row
        for row in twin().device
    )
    witnesses = Witnesses(airframe=msgspec.structs.replace(twin(), device=devices))
    for k in range(100):
        now_s = 0.1 * k
        witnesses.update(
            readings(now_s, baro_m=0.0, tag_m=0.0), at(on_ground=True), now_s, at_rest=True
        )
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
    witnesses.update(readings(20.0, **said), at(), 20.0, at_rest=False)  # type: ignore[arg-type]
    assert witnesses.doubt() == doubt


@pytest.mark.parametrize(
    ("said", "contact"),
    [
        ({"baro_m": 0.1}, Contact.UNKNOWN),  # no family decides alone
        ({"tag_m": 0.0}, Contact.UNKNOWN),
        ({"baro_m": 0.1, "tag_m": 0.1}, Contact.TOUCHING),
        ({"ranger_m": 0.05, "baro_m": 9.0, "tag_m": 0.1}, Contact.TOUCHING),
        ({"ranger_m": 0.05, "baro_m": 9.0}, Contact.UNKNOWN),
        # A frozen ranger and a light ship that rises off its pad.
        ({"ranger_m": 0.05, "baro_m": 0.8}, Contact.UNKNOWN),
        ({"ranger_m": 0.5, "baro_m": 0.5, "tag_m": 0.5}, Contact.UNKNOWN),
        ({"ranger_m": 1.0, "baro_m": 1.0, "tag_m": 1.0}, Contact.AIRBORNE),
        ({"ranger_m": 0.05, "baro_m": 9.0, "tag_m": 9.0}, Contact.AIRBORNE),
        ({}, Contact.UNKNOWN),
    ],
)
def test_the_ground_carries_a_ship_if_two_families_say_so(
    said: dict[str, float], contact: Contact
) -> None:
    witnesses = standing()
    witnesses.update(readings(20.0, **said), at(), 20.0, at_rest=False)  # type: ignore[arg-type]
    assert witnesses.touch.contact is contact


def test_a_ship_that_hovers_low_leaves_the_ground_after_a_second() -> None:
    """It had touched the ground all flight, as nothing said that it did not: never weighed."""
    witnesses = standing()
    said = {
        now_s: readings(now_s, ranger_m=0.5, baro_m=0.5, tag_m=0.5)
        for now_s in (10.5, 11.0, 11.5, 12.0)
    }
    found = []
    for now_s, one in said.items():
        witnesses.update(one, at(), now_s, at_rest=False)
        found.append(witnesses.touch.contact)
    assert found == [Contact.TOUCHING, *[Contact.UNKNOWN] * 3]


def test_a_clock_that_goes_back_keeps_no_old_range() -> None:
    """Before, what was seen last counted until the clock had caught up."""
    witnesses = standing()
    witnesses.update(readings(50.0, ranger_m=0.22, tag_m=0.2), at(), 50.0, at_rest=False)
    witnesses.update(readings(20.0, ranger_m=5.0, tag_m=5.0), at(), 20.0, at_rest=False)
    assert witnesses.heights_m["range"] > 4.0
    assert "range says" in witnesses.doubt()


def test_what_was_said_a_second_ago_counts_for_nothing() -> None:
    witnesses = standing()
    said = readings(20.0, ranger_m=2.0, baro_m=5.0, tag_m=5.0)
    witnesses.update(said, at(), 20.9, at_rest=False)
    assert sorted(witnesses.heights_m) == ["baro", "range", "tag"]
    witnesses.update(said, at(), 21.1, at_rest=False)
    assert witnesses.heights_m == {}


def test_a_ranger_that_is_blind_near_the_ground_counts_for_half_a_minute() -> None:
    witnesses = standing()
    witnesses.update(readings(20.0, ranger_m=0.25, tag_m=0.2), at(), 20.0, at_rest=False)
    blind = readings(49.0, ranger_m=nan, baro_m=3.0, tag_m=0.1)
    witnesses.update(blind, at(), 49.0, at_rest=False)
    assert witnesses.doubt() == ""
    assert witnesses.touch.contact is Contact.TOUCHING, "nearer than it sees"
    still_blind = readings(90.0, baro_m=3.0, tag_m=0.1)
    witnesses.update(still_blind, at(), 90.0, at_rest=False)
    assert witnesses.touch.contact is Contact.TOUCHING, "it has not been seen to rise"
    outlier = readings(90.1, baro_m=3.0, tag_m=-0.7)
    witnesses.update(outlier, at(), 90.1, at_rest=False)
    assert witnesses.touch.contact is Contact.TOUCHING
    risen = readings(90.3, baro_m=3.0, tag_m=3.0)
    witnesses.update(risen, at(), 90.3, at_rest=False)
    witnesses.update(readings(90.4, baro_m=3.1, tag_m=3.1), at(), 90.4, at_rest=False)
    assert sorted(witnesses.heights_m) == ["baro", "tag"]


def test_heights_are_those_above_the_pad() -> None:
    """A ship that drifts up, unpowered, must not make its height the pad's."""
    witnesses = standing(rest_m=0.05)
    for k in range(30):
        now_s = 20.0 + 0.1 * k
        said = readings(now_s, ranger_m=3.05, baro_m=3.0)
        witnesses.update(said, at(), now_s, at_rest=True)
    assert witnesses.heights_m == pytest.approx({"range": 3.0, "baro": 3.0}, abs=0.02)
