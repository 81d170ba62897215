"""Photographs on the page: by their routes, and in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from blimp.camera.photograph import Photographer
from blimp.camera.store import PhotoStore
from blimp.link.camera_control import ControlServer
from tests.browser import looking, serious_findings
from tests.camera.test_store import Drawn
from tests.ground_station.page.client import Served
from tests.queue.conftest import wait_until


@pytest.fixture
def store(served: Served) -> Iterator[PhotoStore]:
    """A ship with a camera."""
    store = PhotoStore(served.ship.runtime / "photos", free_bytes=0)
    store.open()
    photographer = Photographer(source=Drawn(), store=store)
    control = served.ship.runtime / "camera-control.sock"
    with ControlServer(control, {"photo": photographer.answer}):
        yield store


def listed(served: Served, token: str = "operator") -> list[dict[str, Any]]:
    status, found = served.ask("/api/photos", token=token)
    assert status == 200
    photos: list[dict[str, Any]] = found["photos"]
    return photos


def test_previews_come_by_themselves_and_whole_ones_when_an_operator_asks(
    served: Served, store: PhotoStore
) -> None:
    assert served.ask("/api/photos", token=None)[0] == 401
    assert listed(served) == []
    assert served.ask("/api/command/photo", {})[1]["state"] == "SUCCESS"
    wait_until(lambda: [one["has_preview"] for one in listed(served)] == [True], "no preview")
    (photo,) = listed(served, "viewer")
    name = photo["name"]
    assert served.ask(f"/api/photos/{name}?preview=1", token="viewer")[1].startswith(b"\xff\xd8")
    assert served.ask(f"/api/photos/{name}")[0] == 204
    assert store.photos(1)
    assert served.ask(f"/api/photos/{name}", {}, token="viewer")[0] == 403
    assert served.ask(f"/api/photos/{name}", {})[1]["state"] == "PENDING"
    wait_until(lambda: listed(served)[0]["is_here"], "it does not come")
    status, data = served.ask(f"/api/photos/{name}")
    assert (status, len(data)) == (200, photo["bytes"])
    wait_until(lambda: not store.photos(1), "the ship keeps it")

    def why() -> str:
        return str(served.ask(f"/api/photos/{name}", {})[1]["reason"])

    wait_until(lambda: why() == "it does not wait on the ship", "it is fetched again")


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "x", "20270115T080000000Z-0123456789abcdef", "%0d%0aa:b"]
)
def test_no_other_file_is_served(served: Served, name: str) -> None:
    assert served.ask(f"/api/photos/{name}")[0] in (204, 404)
    assert served.ask(f"/api/photos/{name}?preview=1")[0] in (204, 404)


def test_the_album_takes_shows_and_saves(
    served: Served, store: PhotoStore, chromium: Browser, tmp_path: Path
) -> None:
    with looking(chromium) as page:
        page.goto(f"{served.page.url}#photos")
        expect(page.get_by_test_id("photo-take")).to_be_enabled()
        page.get_by_test_id("photo-take").click()
        image = page.get_by_test_id("photos").locator("img")
        expect(image).to_be_visible()
        assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") == 320
        assert serious_findings(page) == []
        with page.expect_download() as saved:
            page.get_by_test_id("photo").click()
        saved.value.save_as(tmp_path / "saved.jpg")
        assert (tmp_path / "saved.jpg").read_bytes().startswith(b"\xff\xd8\xff")
