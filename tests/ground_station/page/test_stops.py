"""Emergency stops: ready before the press, and delayed by nothing but their own ship."""

import threading
from typing import Any

from blimp.errors import LinkError
from ground_station.page.stops import PRESSES, Stops
from tests.ground_station.page.client import WITHIN_S


def test_a_silent_ship_delays_no_stop_of_another() -> None:
    silent = threading.Event()

    def stop(vehicle: str) -> dict[str, Any]:
        if vehicle.startswith("silent"):
            silent.wait(WITHIN_S)
        return {"state": "SUCCESS", "vehicle": vehicle}

    with Stops(ready=lambda _: None, stop=stop) as stops:
        waiting = [
            stops.press(f"silent{number}") for number in range(40) for _ in range(PRESSES + 1)
        ]
        assert stops.press("twin").result(WITHIN_S)["vehicle"] == "twin"
        assert not any(one.done() for one in waiting)
        silent.set()
        assert all(one.result(WITHIN_S)["state"] == "SUCCESS" for one in waiting)


def test_a_ship_is_made_ready_before_the_press_once_and_without_a_broker_too() -> None:
    made_ready: list[str] = []
    begun = threading.Event()

    def ready(vehicle: str) -> None:
        made_ready.append(vehicle)
        begun.set()
        raise LinkError("no broker")

    with Stops(ready=ready, stop=lambda _: {"state": "SUCCESS"}) as stops:
        stops.prepare("twin")
        stops.prepare("twin")
        assert begun.wait(WITHIN_S)
        assert stops.press("twin").result(WITHIN_S)["state"] == "SUCCESS"
    assert made_ready == ["twin"]


def test_a_slow_connection_delays_no_press() -> None:
    connecting = threading.Event()

    def ready(_: str) -> None:
        connecting.wait(WITHIN_S)

    with Stops(ready=ready, stop=lambda _: {"state": "SUCCESS"}) as stops:
        stops.prepare("twin")
        assert stops.press("twin").result(WITHIN_S)["state"] == "SUCCESS"
        connecting.set()


def test_a_ship_over_the_limit_is_stopped_too() -> None:
    with Stops(ready=lambda _: None, stop=lambda one: {"vehicle": one}) as stops:
        for number in range(70):
            name = f"ship{number}"
            assert stops.press(name).result(WITHIN_S) == {"vehicle": name}
