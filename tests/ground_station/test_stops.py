"""Emergency stops: ready before the press, and delayed by nothing but their own ship."""

import threading
from collections.abc import Callable, Sequence

import pytest

from blimp.errors import LinkError
from blimp.web.outcome import Outcome
from ground_station.stops import PRESSES, Find, Stops
from tests.ground_station.page.client import WITHIN_S


class Ships:
    """Ships that confirm at once, unless `stop` or `ready` says otherwise."""

    def __init__(
        self,
        *finders: Find,
        stop: Callable[[str], object] = lambda _: None,
        ready: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._finders, self._stop, self._ready = finders, stop, ready

    def finders(self) -> Sequence[Find]:
        return self._finders

    def ready(self, vehicle: str) -> None:
        self._ready(vehicle)

    def stop(self, vehicle: str) -> Outcome:
        self._stop(vehicle)
        return Outcome(id=vehicle, task="blimp.estop", state="SUCCESS", latency_ms=1.0)


def unreachable(*_: str) -> list[str]:
    raise LinkError("no broker")


def test_a_silent_ship_delays_no_stop_of_another() -> None:
    silent = threading.Event()

    def stop(vehicle: str) -> None:
        if vehicle.startswith("silent"):
            silent.wait(WITHIN_S)

    with Stops(Ships(stop=stop)) as stops:
        waiting = [
            stops.press(f"silent{number}") for number in range(40) for _ in range(PRESSES + 1)
        ]
        assert stops.press("twin").result(WITHIN_S).id == "twin"
        assert not any(one.done() for one in waiting)
        silent.set()
        assert all(one.result(WITHIN_S).state == "SUCCESS" for one in waiting)


@pytest.mark.parametrize("ready", [unreachable, threading.Event().wait])
def test_a_ship_is_made_ready_once_and_neither_that_nor_no_broker_delays_a_press(
    ready: Callable[[str], object],
) -> None:
    made_ready: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def prepare(vehicle: str) -> None:
        made_ready.append(vehicle)
        begun.set()
        unreachable() if ready is unreachable else ended.wait(WITHIN_S)

    with Stops(Ships(ready=prepare)) as stops:
        stops.prepare("twin")
        stops.prepare("twin")
        assert begun.wait(WITHIN_S)
        assert stops.press("twin").result(WITHIN_S).state == "SUCCESS"
        ended.set()
    assert made_ready == ["twin"]


def test_a_ship_over_the_limit_is_stopped_too() -> None:
    with Stops(Ships()) as stops:
        for number in range(70):
            name = f"ship{number}"
            assert stops.press(name).result(WITHIN_S).id == name


def test_a_stop_of_all_waits_for_no_broker_no_ship_and_names_what_did_not_confirm() -> None:
    silent, heard, ended = threading.Event(), threading.Event(), dict[str, str]()

    def stop(vehicle: str) -> None:
        if vehicle == "silent":
            silent.wait(WITHIN_S)
            unreachable()

    def on_end(vehicle: str, outcome: Outcome) -> None:
        ended[vehicle] = outcome.state
        if {"here", "heard", "prepared"} <= ended.keys():
            heard.set()

    def slow_broker() -> list[str]:
        silent.wait(WITHIN_S)
        return ["late"]

    ships = Ships(
        lambda: ["silent", "here"], unreachable, slow_broker, lambda: ["heard"], stop=stop
    )
    with Stops(ships) as stops:
        stops.prepare("prepared")
        pressed = stops.press_all(on_end=on_end)
        assert heard.wait(WITHIN_S)
        assert not pressed.done()
        silent.set()
        found = pressed.result(WITHIN_S)
    assert found["state"] == "FAILURE"
    assert found["reason"] == "not confirmed: silent: no broker; no broker"
    states = {name: one["state"] for name, one in found["ships"].items()}
    confirmed = dict.fromkeys(("here", "heard", "late", "prepared"), "SUCCESS")
    assert states == ended == {"silent": "FAILURE", **confirmed}


def test_a_stop_of_all_without_any_ship_says_why() -> None:
    for finders, reason in (([unreachable], "no broker"), ([list[str]], "no ship to stop")):
        with Stops(Ships(*finders)) as stops, pytest.raises(LinkError, match=reason):
            stops.press_all().result(WITHIN_S)
