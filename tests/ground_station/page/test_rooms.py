"""The queue room and the fleet: what they show and change, who may, and what a stranger chose."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect
from redis import Redis

from blimp.link.telemetry import KEY_PREFIX, TelemetryPublisher
from blimp.queue import TaskApp
from blimp.queue.operations import open_session
from blimp.queue.redis.urls import redis_url
from blimp.tasks.client import VehicleClient, vehicle_queue
from tests.browser import looking, misfits, serious_findings, too_wide_px
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.page.test_joystick import snapshot

MARKUP = "<img src=x onerror='window.broken = 1'>"


@contextmanager
def another(served: Served, vehicle: str, failsafe: str = "") -> Iterator[TaskApp]:
    """A second ship that is heard; no worker takes from its queue."""
    url, queue = served.ship.broker.url, vehicle_queue(vehicle)
    heard, ended = threading.Event(), threading.Event()

    def publish() -> None:
        with TelemetryPublisher(url, vehicle) as publisher:
            while not ended.wait(0.2):
                if publisher.publish(replace(snapshot(served), failsafe=failsafe), 0.0):
                    heard.set()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        assert heard.wait(WITHIN_S), "the broker takes no snapshot"
        with TaskApp(queue, broker=url, result_backend=url, queue=queue) as app:
            yield app
    finally:
        ended.set()
        thread.join()
        with Redis.from_url(redis_url(url)) as redis:  # or the next page has two ships
            redis.delete(KEY_PREFIX + vehicle)


def give_up(app: TaskApp, reasons: dict[str, str]) -> None:
    """Send tasks and have them dead letters, all of them, each for its reason."""
    for number, name in enumerate(reasons):
        app.send_task(name, kwargs={"n": 1}, task_id=f"dead{number}")
    with open_session(app) as session:
        queue = session.keys.queue(app.queue)
        session.store.make_group(queue)
        taken = session.store.take([queue], room=len(reasons)).deliveries
        for (claim, _), reason in zip(taken, reasons.values(), strict=True):
            session.store.dead_letter(claim, reason)


def test_the_queue_room_shows_and_changes_what_the_queues_own_commands_do(served: Served) -> None:
    with another(served, f"{served.ship.vehicle}-b") as app:
        give_up(app, {"blimp.ping": "delivered 5 times", "blimp.hold": "x" * 500})
        path = f"/api/queue?vehicle={served.ship.vehicle}-b"
        status, room = served.ask(path, token="viewer")
        assert status == 200
        assert room["queues"][f"{served.ship.vehicle}-b"]["dead"] == 2
        assert {"ready", "in_flight", "scheduled"} <= set(room["queues"][served.ship.vehicle])
        assert room["workers"] == {}
        ping, hold = room["dead"]
        assert (ping["task"], ping["id"], ping["reason"]) == (
            "blimp.ping", "dead0", "delivered 5 times",
        )  # fmt: skip
        assert hold["reason"] == "x" * 199 + "…", "what is left out shows"
        act = f"/api/queue/%s?vehicle={served.ship.vehicle}-b"
        for action in ("requeue", "drop", "revoke"):
            body = {"id": ping["letter"]}
            assert served.ask(act % action, body, token="viewer")[0] == 403
            assert served.ask(act % action, body, token=None)[0] == 401
            for wrong in (None, 7, "", "all", "1-1 ", "../x", "x" * 1000):
                status, answer = served.ask(act % action, {"id": wrong})
                assert (status, answer["state"]) == (400, "FAILURE") or wrong == "all", wrong
        assert served.ask("/api/queue?vehicle=made-up")[0] == 404
        assert served.ask(act % "purge", {"id": "1-1"})[0] == 404
        assert served.ask(act % "requeue", {"id": ping["letter"]})[1]["state"] == "SUCCESS"
        assert served.ask(act % "drop", {"id": hold["letter"]})[1]["state"] == "SUCCESS"
        answer = served.ask(act % "drop", {"id": hold["letter"]})[1]
        assert (answer["state"], "somebody was faster" in answer["reason"]) == ("FAILURE", True)
        room = served.ask(path)[1]
        counts = room["queues"][f"{served.ship.vehicle}-b"]
        assert (room["dead"], counts["ready"], counts["dead"]) == ([], 1, 0)
        assert served.ask(act % "revoke", {"id": "dead0"})[1]["result"].startswith("revoked")

    with VehicleClient(served.ship.broker.url, served.ship.vehicle) as client:
        served.ask("/api/command/arm", {})
        with client.send("takeoff", {"altitude_m": 25}) as pending:
            next(step for step in pending.events(timeout_s=30.0) if step.stage == "executing")
            served.ask("/api/queue/drop", {"id": "1-1"})  # what was asked before is forgotten
            worker = served.ask("/api/queue")[1]["workers"][served.ship.vehicle]
            assert worker["total"]["blimp.arm"] == 1
            assert worker["threads"] >= 8
            assert [one["name"] for one in worker["active"]] in (["blimp.takeoff"], [])


def test_the_fleet_says_who_has_control_and_takes_and_gives_it_back(served: Served) -> None:
    ship = served.ship.vehicle

    def fleet() -> dict[str, object]:
        ships = served.ask("/api/fleet", token="viewer")[1]["ships"]
        return next(one for one in ships if one["vehicle"] == ship)

    found = fleet()
    assert (found["pilot"], found["yours"], found["mode"]) == (None, False, "HOLD")
    for token, expected in (("viewer", 403), (None, 401)):
        assert served.ask("/api/control/take", {"vehicle": ship}, token=token)[0] == expected
    for wrong in ({}, {"vehicle": 7}, {"vehicle": ship, "force": "yes"}):
        assert served.ask("/api/control/take", wrong)[0] == 400
    assert served.ask("/api/control/steal", {"vehicle": ship})[0] == 404
    answer = served.ask("/api/control/take", {"vehicle": "nobody"})[1]
    assert (answer["state"], "nobody" in answer["reason"]) == ("REFUSED", True)
    assert served.ask("/api/control/take", {"vehicle": ship})[1]["state"] == "SUCCESS"
    assert fleet()["yours"] is True
    # The page's commands and sticks carry the token of this control; those of others do not.
    assert served.ask("/api/command/arm", {})[1]["state"] == "SUCCESS"
    with VehicleClient(served.ship.broker.url, ship) as stranger:
        reply = stranger.send("disarm").wait(30.0)
    assert "holds control" in reply.reason
    assert served.ask("/api/control/release", {"vehicle": ship})[1]["state"] == "SUCCESS"
    assert fleet()["pilot"] is None


# What is pressed when another ship comes into trouble, and what is there then.
PRESSED = """([name, other]) => {
  const fleet = page.mounted.find((one) => one.ships);
  const button = () => document.querySelector(`[data-testid="fleet-stop-${name}"]`);
  const row = () => button().closest("tr").rowIndex;
  const [pressed, before] = [button(), row()];
  const failsafe = "battery low: landing";
  fleet.show(fleet.found.map((one) => (one.vehicle === other ? { ...one, failsafe } : one)));
  return [pressed === button(), row() - before];
}"""


@pytest.mark.long  # 20 ships are published
def test_of_twenty_ships_the_one_in_trouble_is_first_and_each_has_a_stop(
    served: Served, chromium: Browser
) -> None:
    ship = served.ship.vehicle
    others = [f"z{number}" for number in range(2, 20)]
    with ExitStack() as ships, looking(chromium) as page:
        ships.enter_context(another(served, "zz", "link lost: holding"))
        for name in others:
            ships.enter_context(another(served, name))
        page.goto(f"{served.page.url}#fleet")
        rows = page.locator(".fleet tbody tr")
        expect(rows).to_have_count(20)
        expect(rows.first).to_contain_text("link lost: holding")
        assert page.evaluate(PRESSED, [ship, others[-1]]) == [True, 1]
        assert misfits(page) == []
        for name in (others[0], ship):  # nobody confirms the first; it keeps nobody else's stop
            page.get_by_test_id(f"fleet-stop-{name}").click()
        expect(page.locator("#stop-answer")).to_contain_text(f"{ship} confirms")
        expect(page.locator("#stop-answer")).to_contain_text(f"{others[0]}: ")
        assert serious_findings(page) == []


# Playwright runs an event loop in this thread, and the test sends by plain calls.
@pytest.mark.filterwarnings("ignore:.* waits for the server:RuntimeWarning")
def test_rooms_are_used_in_a_browser_and_a_strangers_markup_is_text(
    served: Served, chromium: Browser
) -> None:
    vehicle = f"{served.ship.vehicle}{MARKUP}"
    with another(served, vehicle) as app:
        why = f"why {MARKUP} {'x' * 100}"
        give_up(app, dict.fromkeys((f"blimp.{MARKUP}", "blimp.hold"), why))
        with looking(chromium, viewport={"width": 390, "height": 800}) as page:
            page.goto(f"{served.page.url}#fleet")
            by = page.get_by_test_id
            by(f"fleet-take-{served.ship.vehicle}").click()
            expect(page.locator("#panels")).to_contain_text("(you)")
            by(f"fleet-release-{served.ship.vehicle}").click()
            by(f"fleet-take-{served.ship.vehicle}").wait_for()
            expect(page.get_by_role("link", name=vehicle)).to_be_visible()
            page.goto(f"{served.page.url}&vehicle={quote(vehicle)}#queue")
            expect(page.locator("#panels")).to_contain_text(why)
            expect(page.locator("#vehicle")).to_contain_text(MARKUP)
            assert too_wide_px(page) <= 0, "a long name or reason is wider than a phone"
            for left, action in ((1, "Drop"), (0, "Requeue")):
                button = page.get_by_role("button", name=action, exact=True)
                button.first.click()
                expect(button).to_have_count(left)
            assert page.evaluate("window.broken") is None
            assert page.locator("main img").count() == 0
