"""What was set on a ship is kept, checked, and never overrules a newer airframe's file."""

from pathlib import Path

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.errors import ConfigError, Refused, TaskError
from blimp.parameters import with_parameter
from blimp.service.parameters import FlownFile, ParameterFile

TWIN = airframes.load("twin")
SLOW = with_parameter(TWIN, "limits.speed_mps", 0.5)


@pytest.fixture
def kept(tmp_path: Path) -> ParameterFile:
    return ParameterFile(tmp_path / "parameters.json")


def test_what_was_set_is_there_at_the_next_start_until_it_is_set_back(kept: ParameterFile) -> None:
    assert kept.onto(TWIN) == (TWIN, ())
    kept.keep(SLOW, own=TWIN)
    assert kept.onto(TWIN) == (SLOW, ())
    kept.keep(TWIN, own=TWIN)
    assert kept.path.read_text() == "{}\n"


def test_a_number_that_was_changed_in_the_airframes_file_since_goes_first(
    kept: ParameterFile,
) -> None:
    kept.keep(SLOW, own=TWIN)
    edited = with_parameter(TWIN, "limits.speed_mps", 0.6)
    found = kept.onto(edited)
    assert found.airframe == edited
    assert "limits.speed_mps is 0.6: 0.5 was set when" in found.passed_over[0]


def test_a_number_that_this_version_does_not_have_any_more_is_passed_over(
    kept: ParameterFile,
) -> None:
    kept.path.write_text('{"estimator.plumb_gain": {"was": 0.12, "value": 0.1}}')
    assert kept.onto(TWIN) == (
        TWIN, ("estimator.plumb_gain has no effect in this version: 0.1",)
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"limits.speed_mps": 1}', '{"nose.length": {"was": 1, "value": 2}}',
     '{"limits.speed_mps": {"was": 0.7, "value": -1}}', "[" * 10_000],
)  # fmt: skip
def test_a_file_that_is_none_is_an_error_with_its_cure(kept: ParameterFile, text: str) -> None:
    kept.path.write_text(text)
    with pytest.raises(ConfigError, match=r"parameters\.json: .*remove the file"):
        kept.onto(TWIN)


def test_a_parameter_with_which_it_cannot_fly_is_refused_as_its_airframe_would_be(
    tmp_path: Path,
) -> None:
    flown = FlownFile(tmp_path / "airframe.json")
    with pytest.raises(TaskError, match="no flight process"):
        flown.read()
    assert not flown.has("limits.speed_mps", 0.5)
    (tmp_path / "airframe.json").write_bytes(msgspec.json.encode(SLOW))
    assert flown.has("limits.speed_mps", 0.5)
    assert flown.check("limits.speed_mps", 0.4) == ()
    assert "above what full thrust reaches" in flown.check("limits.speed_mps", 20.0)[0]
    for name, value, words in (
        ("battery.empty_v", 9.0, "cannot fly: battery: warn_v"),
        ("limits.descent_mps", 50.0, "cannot fly: thrusters"),
        ("limits.speed_mps", 0.0, "must be above 0 m/s"),
        ("limits.speed_mps", True, "must be a number"),
        ("limits.speed_mps", None, "must be a number"),
        (None, 1.0, "must be a text"),
    ):
        with pytest.raises(Refused, match=words):
            flown.check(name, value)
