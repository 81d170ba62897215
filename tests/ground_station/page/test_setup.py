"""Setup and the end card's buttons: what they show, who may, and what they refuse."""

import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from blimp import airframe as airframes
from blimp.config import log_directory
from blimp.link.paths import RuntimePaths
from blimp.link.registry import register
from blimp.recording.log_file import LogFile
from blimp.recording.recording import open_recording
from tests.browser import context_of, errors_of, looking, serious_findings
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.page.test_browser import CARD
from tests.ground_station.ship import FlyingShip
from tests.recording.conftest import flown

__all__ = ["flown"]


@pytest.fixture
def local(served: Served, tmp_path: Path) -> Served:
    """The same ship, registered as one that runs on this machine."""
    ship = served.ship
    paths = RuntimePaths(tmp_path / "here")
    paths.directory.mkdir()
    paths.airframe.write_bytes(msgspec.json.encode(airframes.load("twin")))
    registry = tmp_path / "run" / f"{ship.vehicle}.json"
    register(registry, vehicle=ship.vehicle, broker=ship.broker.url, runtime_dir=paths.directory)
    return served


@pytest.fixture
def logs(twin: FlyingShip, flown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of logs, with one of an earlier flight of the ship."""
    monkeypatch.setenv("BLIMP_LOG_DIR", str(tmp_path / "logs"))
    log_directory().mkdir(mode=0o700)
    shutil.copy(flown, log_directory() / f"{twin.vehicle}-000006-20260101T000000Z.mcap")
    return log_directory()


def test_the_log_of_an_earlier_flight_is_not_given(logs: Path, local: Served) -> None:
    status, answer = local.ask("/api/log")
    assert (status, answer["state"], "is not recorded" in answer["reason"]) == (
        200,
        "REFUSED",
        True,
    )
    answer = local.ask("/api/replay", {})[1]
    assert (answer["state"], "is not recorded" in answer["reason"]) == ("REFUSED", True)
    earlier = next(logs.iterdir())
    with earlier.open("ab") as file:  # as its recorder does while the ship flies
        file.write(b"more")
    assert local.ask("/api/log") == (200, earlier.read_bytes())


def test_a_flight_in_several_logs_is_given_whole(logs: Path, local: Served) -> None:
    vehicle = local.ship.vehicle
    names = [f"{vehicle}-00000{one}-20260101T000000Z.mcap" for one in (7, 8)]
    with open_recording(next(logs.iterdir())) as log:
        for number, name in enumerate(names):
            with LogFile(logs / name, log.session, before=names[0] if number else "") as new:
                for message in log.messages(number):
                    new.add(message)
        both = len(log.messages(0)) + len(log.messages(1))
    status, given = local.ask("/api/log")
    assert status == 200
    (logs / "given").write_bytes(given)
    with open_recording(logs / "given") as whole:
        assert sum(whole.info().topics.values()) == both
    assert local.ask("/api/replay", {})[1]["state"] == "SUCCESS"


def test_checks_and_logs_are_for_the_operator_and_for_a_ship_that_is_here(served: Served) -> None:
    for path in ("/api/setup/check", "/api/setup/doctor", "/api/replay"):
        assert served.ask(path, {}, token=None)[0] == 401
        status, answer = served.ask(path, {}, token="viewer")
        assert (status, "read-only" in answer["reason"]) == (403, True)
        assert served.ask(path, {}, headers={"Origin": "http://evil.example"})[0] == 403
        answer = served.ask(path, {})[1]
        assert answer["state"] == "REFUSED"
        assert "machine" in answer["reason"]
    assert served.ask("/api/log", token="viewer")[0] == 403
    assert served.ask("/api/log")[1]["state"] == "REFUSED"
    assert served.ask("/api/setup/format", {})[0] == 404


def test_parameters_are_read_from_a_ship_elsewhere_and_set_by_the_operator(served: Served) -> None:
    found = served.ask("/api/setup", token="viewer")[1]  # it is not registered on this machine
    speed = next(one for one in found["parameters"] if one["name"] == "speed_mps")
    assert (speed["section"], speed["unit"], speed["limits"]) == ("limits", "m/s", "above 0")
    assert found["motors"] == ["left", "right", "tail"]
    asked = {"name": "limits.speed_mps", "value": -1}
    assert served.ask("/api/command/param", asked, token="viewer")[0] == 403
    answer = served.ask("/api/command/param", asked)[1]
    assert (answer["state"], "above 0 m/s" in answer["reason"]) == ("REFUSED", True)
    answer = served.ask("/api/command/param", {"name": "limits.speed_mps"})[1]
    assert [one["value"] for one in answer["result"]["parameters"]] == [speed["value"]]
    nobody = served.ask("/api/setup?vehicle=nobody")[1]
    assert nobody["parameters"] == []
    assert "nobody" in nobody["reason"]


@pytest.mark.parametrize(
    ("view", "table", "buttons"),
    [
        ("fleet", ".fleet tbody tr", ["fleet-stop-{}", "fleet-take-{}"]),
        ("setup", ".setup tbody tr", ["setup-check", "setup-choose-limits.speed_mps"]),
    ],
    ids=["fleet", "setup"],
)
def test_buttons_work_on_a_page_that_knows_late_who_it_is(
    local: Served, chromium: Browser, monkeypatch: pytest.MonkeyPatch, view: str, table: str,
    buttons: list[str],
) -> None:  # fmt: skip
    ships, may_greet = local.page._ships, threading.Event()
    about = ships.about

    def late(vehicle: str) -> dict[str, Any]:
        may_greet.wait(WITHIN_S)
        return about(vehicle)

    monkeypatch.setattr(ships, "about", late)
    with looking(chromium) as page:
        page.goto(f"{local.page.url}#{view}")
        expect(page.locator(table).filter(visible=True).first).to_be_visible()
        may_greet.set()
        for name in buttons:
            expect(page.get_by_test_id(name.format(local.ship.vehicle))).to_be_enabled()


def test_setup_and_the_end_card_in_a_browser(
    logs: Path, local: Served, flown: Path, chromium: Browser
) -> None:
    name = f"{local.ship.vehicle}-000007-20260101T000000Z.mcap"
    shutil.copy(flown, logs / name)
    with context_of(chromium, viewport={"width": 400, "height": 600}) as context:
        page = context.new_page()
        wrong = errors_of(page)
        page.goto(f"{local.page.url}#setup")
        by = page.get_by_test_id
        expect(by("setup-motor-left")).to_be_disabled()
        by("setup-props-off").check()
        by("setup-motor-left").click()
        expect(by("setup-answer")).to_contain_text("REFUSED")
        by("setup-check").click()
        expect(by("setup-status")).to_have_text("It can fly.")
        expect(page.locator("#panels")).to_contain_text("nose into it")
        by("setup-find").fill("speed")
        expect(page.locator("#panels")).to_contain_text("limits.speed_mps")
        expect(page.locator("#panels")).not_to_contain_text("limits.climb_mps")
        by("setup-choose-limits.speed_mps").click()
        for wanted, words in (("fast", "is no number"), ("-1", "must be above 0 m/s")):
            by("setup-value").fill(wanted)
            by("setup-set").click()
            expect(by("setup-set-answer")).to_contain_text(words)
        assert serious_findings(page) == []

        local.page.tell("end", CARD)
        with page.expect_download() as log:
            by("end-log").click()
        assert log.value.suggested_filename == name
        assert Path(log.value.path()).read_bytes() == flown.read_bytes()
        with page.expect_download() as picture:
            by("end-picture").click()
        assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
        with context.expect_page() as replayed:
            by("end-replay").click()
        expect(replayed.value.get_by_test_id("recording")).to_be_visible()
        assert wrong == []
        local.page.close()
        expect(by("end-note")).to_have_text(
            "The demo has ended, and the server of this page with it. To see it again, on a "
            f"terminal: blimp log replay {name}"
        )
        expect(by("end-replay")).to_be_disabled()
