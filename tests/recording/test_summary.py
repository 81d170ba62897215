"""A flight's figures, each beside the same one reckoned from the log in another way."""

from math import dist, hypot, sqrt
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import pytest

from blimp.recording.flight_data import FlightData, Table, read_flight
from blimp.recording.recording import Entry, open_recording
from blimp.recording.summary import (
    ROWS,
    Figures,
    figures_of,
    in_words,
    refusals_in_words,
    shown,
)


@pytest.fixture(scope="module")
def read(flown: Path) -> tuple[FlightData, list[Entry]]:
    with open_recording(flown) as log:
        return read_flight(log), list(log.entries())


@pytest.fixture(scope="module")
def figures(read: tuple[FlightData, list[Entry]]) -> Figures:
    return figures_of(read[0])


def of(entries: list[Entry], topic: str) -> list[Entry]:
    return [one for one in entries if one.topic == topic]


def test_errors_are_those_of_cycles_that_fly(
    read: tuple[FlightData, list[Entry]], figures: Figures
) -> None:
    heights, places = [], []
    for one in of(read[1], "/snapshot"):
        data, setpoint = one.data, one.data["setpoint"]
        if not data["armed"] or data["on_ground"] or data["idle"]:
            continue
        if "down_m" in setpoint:
            heights.append(abs(setpoint["down_m"] - data["position_ned_m"][2]))
        if "north_m" in setpoint and "east_m" in setpoint:
            wanted = (setpoint["north_m"], setpoint["east_m"])
            places.append(dist(wanted, data["position_ned_m"][:2]))
    assert len(heights) > 100
    assert len(places) > 100
    assert figures.height_error_worst_m == pytest.approx(max(heights))
    assert figures.position_error_worst_m == pytest.approx(max(places))
    rms_m = sqrt(sum(one * one for one in places) / len(places))
    assert figures.position_error_rms_m == pytest.approx(rms_m)


def test_the_estimate_is_compared_with_the_truth_of_the_same_instant(
    read: tuple[FlightData, list[Entry]], figures: Figures
) -> None:
    cycles = {round(one.data["t_s"], 2): one.data for one in of(read[1], "/snapshot")}
    apart = []
    for one in of(read[1], "/truth"):
        data = cycles.get(round(one.data["t_s"], 2))
        if data is not None:
            apart.append(dist(data["position_ned_m"][:2], one.data["position_ned_m"][:2]))
    assert len(apart) > 80
    assert figures.position_estimate_error_worst_m == pytest.approx(max(apart), rel=0.05)


def test_what_is_counted(read: tuple[FlightData, list[Entry]], figures: Figures) -> None:
    flight, entries = read
    snapshots = of(entries, "/snapshot")
    assert figures.cycles == len(snapshots)
    assert figures.highest_m == max(-one.data["position_ned_m"][2] for one in snapshots)
    commands = of(entries, "/command")
    assert figures.commands == len([one for one in commands if one.data["name"] != "ping"])
    refused = {one.data["id"] for one in of(entries, "/outcome") if one.data["state"] == "refused"}
    assert figures.refusals == len(refused) == len(refusals_in_words(flight)) > 0
    assert "max_distance_m" in refusals_in_words(flight)[-1]
    begun = {one.data["failsafe"] for one in of(entries, "/status")} - {""}
    assert begun
    assert {span.name for span in flight.failsafes} == begun
    assert figures.overruns == 0


def test_battery_and_charge(read: tuple[FlightData, list[Entry]], figures: Figures) -> None:
    status = of(read[1], "/status")
    volts = [one.data["battery_v"] for one in status if "battery_v" in one.data]
    assert figures.battery_start_v == volts[0]
    assert figures.battery_end_v == volts[-1]
    assert figures.battery_lowest_v == min(volts)
    used_as, before = 0.0, status[0]
    for one in status[1:]:
        value = before.data["sensors"]["power"]["value"]
        used_as += (value[1] if value else 0.0) * (one.t_s - before.t_s)
        before = one
    assert figures.used_mah == pytest.approx(1e3 * used_as / 3600.0, rel=0.03)


def test_wind_and_speed(read: tuple[FlightData, list[Entry]], figures: Figures) -> None:
    winds = [
        one.data["wind_ned_mps"] for one in of(read[1], "/status") if "wind_ned_mps" in one.data
    ]
    strongest = max((hypot(*wind[:2]) for wind in winds), default=None)
    assert figures.wind_strongest_mps == (None if strongest is None else pytest.approx(strongest))
    speeds = [
        hypot(*one.data["velocity_ned_mps"][:2])
        for one in of(read[1], "/snapshot")
        if one.data["armed"] and not one.data["on_ground"] and not one.data["idle"]
    ]
    assert figures.fastest_mps == pytest.approx(max(speeds))


def test_times_of_cycles_and_commands_are_not_those_of_lockstep(
    read: tuple[FlightData, list[Entry]], figures: Figures
) -> None:
    flight = read[0]
    assert (figures.step_p50_ms, figures.late_cycles, figures.latency_p50_ms) == (None, None, None)
    step_ms = np.linspace(0.5, 12.0, len(flight.cycles.t_s))
    timed = flight._replace(
        session=msgspec.structs.replace(flight.session, lockstep=False),
        cycles=Table(flight.cycles.t_s, {**flight.cycles.columns, "step_ms": step_ms}),
        latency_s=np.array([0.010, 0.020, 0.030, 0.500]),
    )
    found = figures_of(timed)
    assert found.late_cycles == sum(one > 10.0 for one in step_ms)
    assert found.step_p50_ms == pytest.approx(median(step_ms))
    assert found.step_worst_ms == 12.0
    assert found.latency_p50_ms == pytest.approx(25.0)
    assert found.latency_worst_ms == 500.0


def test_a_flight_without_a_position_says_so_and_has_no_figures_of_it(
    read: tuple[FlightData, list[Entry]],
) -> None:
    flight = read[0]
    blind = flight._replace(
        votes={name: votes for name, votes in flight.votes.items() if "position " not in name}
    )
    found = figures_of(blind)
    assert (found.position_error_worst_m, found.farthest_m, found.distance_m) == (None, None, None)
    assert found.height_error_worst_m is not None
    assert "No sensor gave a position" in " ".join(in_words(blind, found))
    assert shown(ROWS[3], found) == "-"
