"""Which numbers of an airframe may be set, and what is said of one that may not."""

import pytest

from blimp import airframe as airframes
from blimp.parameters import find, parameters, with_parameter

TWIN = airframes.load("twin")


def test_parameters_have_units_and_limits_of_the_schema() -> None:
    found = {one.path: one for one in parameters(TWIN)}
    speed = found["limits.speed_mps"]
    assert (speed.value, speed.unit, speed.limits) == (TWIN.limits.speed_mps, "m/s", "above 0")
    assert found["home.latitude_deg"].limits == "-90 to 90"
    assert found["limits.yaw_rate_radps"].unit == "rad/s"
    assert found["gains.velocity_i"].limits == "at least 0"
    assert found["gains.swing_damping"].limits == "0 to 0.5"
    assert all(one.limits for one in found.values())


def test_every_parameter_can_be_set_to_what_it_is_and_nothing_else_changes() -> None:
    for one in parameters(TWIN):
        assert with_parameter(TWIN, one.path, float(one.value)) == TWIN
    changed = with_parameter(TWIN, "battery.cells", 3.0)
    assert find(changed, "battery.cells").value == 3
    assert with_parameter(changed, "battery.cells", TWIN.battery.cells) == TWIN


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("limits.speed_mps", 0.0, "limits.speed_mps is 0 m/s, must be above 0 m/s"),
        ("limits.speed_mps", 10**400, "below a million"),
        ("limits.speed_mps", float("inf"), "below a million"),
        ("limits.speed_mps", float("nan"), "must be above 0"),
        ("battery.cells", 2.5, "battery.cells is 2.5, must be 1 to 12, a whole number"),
        ("home.latitude_deg", 90.1, "must be -90 to 90"),
        ("limits", 1.0, "no parameter"),
        ("", 1.0, "no parameter"),
    ],
)
def test_a_number_outside_its_limits_is_refused_in_words(
    path: str, value: float, words: str
) -> None:
    with pytest.raises(ValueError, match=r"must be|no parameter") as caught:
        with_parameter(TWIN, path, value)
    assert words in str(caught.value)
