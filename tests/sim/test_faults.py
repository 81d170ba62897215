"""What a fault accepts, and what it says to what it does not."""

import statistics
from random import Random

import pytest

from blimp.errors import ConfigError
from blimp.sim.faults import Faults

ALL = frozenset({"no_answer", "frozen", "stuck", "drift", "noise", "garbage"})


@pytest.fixture
def faults() -> Faults:
    return Faults(device="baro", kinds=ALL, channels=("pressure", "warmth"), random=Random(1))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("melted", {}, "no fault 'melted'.*clear, drift, frozen"),
        ("wrong_identity", {}, "no fault 'wrong_identity'"),
        ("stuck", {}, "needs value=.*not None"),
        ("stuck", {"value": float("nan")}, "needs value="),
        ("stuck", {"value": "high"}, "needs value=.*'high'"),
        ("stuck", {"value": True}, "needs value="),
        ("noise", {"sigma": -1.0}, "needs sigma=.*from 0 to 1e"),
        ("drift", {"rate": 1.0, "channel": "length"}, "no channel 'length'.*pressure, warmth"),
        ("frozen", {"value": 1.0}, "no option 'value'.*none"),
        ("drift", {"speed": 1.0}, "no option 'speed'.*channel, rate"),
    ],
)
def test_what_is_wrong_is_named(
    faults: Faults, kind: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s)'baro'.*{words}|{words}.*'baro'|{words}"):
        faults.set(kind, options, now_s=0.0)
    assert not faults.altered


def test_stuck_drift_and_noise_act_on_their_channel_alone(faults: Faults) -> None:
    faults.set("drift", {"rate": 2.0, "channel": "warmth"}, now_s=10.0)
    assert faults.measure("warmth", 1.0, 13.0) == 7.0
    assert faults.measure("pressure", 1.0, 13.0) == 1.0
    faults.set("stuck", {"value": 5}, now_s=0.0)
    assert faults.measure("pressure", 1.0, 0.0) == 5.0
    faults.set("clear", {}, now_s=0.0)
    faults.set("noise", {"sigma": 3.0}, now_s=0.0)
    values = [faults.measure("pressure", 0.0, 0.0) for _ in range(500)]
    assert statistics.pstdev(values) == pytest.approx(3.0, rel=0.15)


def test_clear_ends_everything(faults: Faults) -> None:
    for kind in ("no_answer", "frozen", "garbage"):
        faults.set(kind, {}, now_s=0.0)
    faults.set("stuck", {"value": 1.0}, now_s=0.0)
    faults.set("clear", {}, now_s=0.0)
    flags = (faults.no_answer, faults.frozen, faults.garbage, faults.altered)
    assert flags == (False, False, False, False)
    assert faults.measure("pressure", 4.0, 0.0) == 4.0


def test_an_offset_is_added_and_a_scale_multiplies() -> None:
    faults = Faults(
        device="imu", kinds=ALL | {"offset", "scale"}, channels=("z",), random=Random(1)
    )
    faults.set("scale", {"factor": -1.0}, now_s=0.0)
    faults.set("offset", {"amount": 0.5}, now_s=0.0)
    assert faults.alters("z")
    assert faults.measure("z", 3.0, 9.0) == -2.5
    faults.set("clear", {}, now_s=0.0)
    assert faults.measure("z", 3.0, 9.0) == 3.0
