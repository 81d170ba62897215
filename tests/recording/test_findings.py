"""What a report begins with: what is worth a look, the worst first, beside its picture."""

import re
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from blimp.recording.findings import findings
from blimp.recording.flight_data import FlightData, Listed, Table
from blimp.recording.report import page
from blimp.recording.summary import figures_of


@pytest.fixture
def calm(flight: FlightData) -> FlightData:
    """The same flight, had all gone well."""
    nowhere = Table(np.empty(0), dict.fromkeys(flight.truth.columns, np.empty(0)))
    heard = flight.status.columns | {"link_age_s": np.zeros(len(flight.status.t_s))}
    return flight._replace(
        failsafes=[], happenings=[], votes={}, truth=nowhere, complete=True,
        status=Table(flight.status.t_s, heard),
    )  # fmt: skip


def words(flight: FlightData) -> list[tuple[str, str]]:
    return [(one.words, one.picture) for one in findings(flight, figures_of(flight))]


def test_a_flight_in_which_all_went_well_has_none(calm: FlightData) -> None:
    assert words(calm) == []
    assert "None: no failsafe" in page(calm)


def test_a_late_loop_and_a_vote_that_is_lost_have_their_figures(calm: FlightData) -> None:
    late = calm.cycles.columns | {"step_ms": np.full(len(calm.cycles.t_s), 17.84)}
    t_s = np.arange(0.0, 9.0, 0.1)
    lost = (t_s > 2.04) & (t_s < 5.55)
    place = {"innovation": np.where(lost, 1.86, 0.1), "agrees": 1.0 - lost}
    turn = {"innovation": np.full(len(t_s), -0.5), "agrees": 1.0 - lost}
    short = {"innovation": np.ones(len(t_s)), "agrees": 1.0 - (t_s < 0.25)}
    bad = calm._replace(
        session=msgspec.structs.replace(calm.session, lockstep=False),
        cycles=Table(calm.cycles.t_s, late),
        votes={
            "position tag": Table(t_s, place),
            "heading magnetometer": Table(t_s, turn),
            "height baro": Table(t_s, short),
        },
    )
    assert words(bad) == [
        ("tag outvoted on position for 3.5 s: 1.9 m from the estimate", "votes"),
        ("magnetometer outvoted on heading for 3.5 s: 29° from the estimate", "votes"),
        ("cycle p99 17.8 ms, limit 10", "timing"),
    ]
    zero = np.zeros_like(calm.cycles["north"])
    truth: dict[str, NDArray[np.floating[Any]]] = dict.fromkeys(calm.truth.columns, zero)
    known = bad._replace(truth=Table(calm.cycles.t_s, truth))
    assert re.match(
        r"tag outvoted on position for 3.5 s: estimate \d+\.\d m off", words(known)[0][0]
    )


def test_what_is_worse_stands_first_and_each_has_its_picture(flight: FlightData) -> None:
    processes = [
        Listed(1, 3.0, "process", "the worker died of SIGKILL", is_fault=True),
        Listed(2, 4.0, "process", "the worker runs again after 0.6 s"),
        Listed(3, 5.0, "process", "the flight process died of SIGKILL", is_fault=True),
        Listed(4, 5.0, "process", "the flight process is down, and outputs may not be safe: left",
               is_fault=True),
    ]  # fmt: skip
    bad = flight._replace(happenings=[*flight.happenings, *processes])
    found = [one for one, _ in words(bad)]
    assert [one for one in found if "process" in one][:2] == [
        "5.0 s: the flight process is down, and outputs may not be safe: left",
        "5.0 s: the flight process died of SIGKILL",
    ]
    places = [next(i for i, one in enumerate(found) if part in one) for part in (
        "may not be safe", "flight process died", ": link lost", "baro: ", "the worker died",
        "commands refused",
    )]  # fmt: skip
    assert places == sorted(places), found
    assert not any("runs again" in one for one in found)
    html = page(bad)
    assert html.index('id="findings"') < html.index('id="summary"')
    links = re.findall(r'<li><a href="#(\w+)">', html)
    assert links
    assert all(f'id="{link}"' in html for link in links)
