"""The camera's picture on the page: by its route, and in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from playwright.sync_api import Browser, expect

from blimp.camera.frame import Frame
from blimp.camera.picture import small_jpeg
from blimp.clock import SystemClock
from blimp.link.picture import PictureSender
from tests.browser import looking, serious_findings
from tests.ground_station.page.client import Served
from tests.queue.conftest import wait_until

CLOCK = SystemClock()
TAG = {"label": "tag 7", "points": [[200, 120], [440, 120], [440, 360], [200, 360]]}
GREEN = """() => {
  const canvas = document.querySelector("[data-testid=camera]");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const [r, g, b] = getComputedStyle(document.body).getPropertyValue("--good").match(/\\w\\w/g);
  const wanted = [r, g, b].map((one) => parseInt(one, 16));
  let found = 0;
  for (let i = 0; i < data.length; i += 4)
    found += wanted.every((one, n) => Math.abs(data[i + n] - one) < 12);
  return found;
}"""


class Camera:
    """A camera's process, as the broker sees it: a slope of grey with one tag found in it."""

    def __init__(self) -> None:
        self._sequence = 0

    def take(self, after: int, timeout_s: float) -> dict[str, Any]:
        self._sequence += 1
        slope = np.linspace(60, 200, 640).astype(np.uint8)
        pixels = np.broadcast_to(slope[None, :, None], (480, 640, 3)).copy()
        frame = Frame(
            sequence=self._sequence, t_s=CLOCK.now_s(), exposure_s=0.01, gain=1.0, pixels=pixels
        )
        seen = {"tags": {"sequence": self._sequence, "content": {"shapes": [TAG]}}}
        about = {"sequence": self._sequence, "t_s": frame.t_s, "size": [640, 480], "seen": seen}
        return {"about": about, "jpeg": small_jpeg(frame)}


@contextmanager
def sending(served: Served) -> Iterator[PictureSender]:
    ship = served.ship
    with PictureSender(
        ship.broker.url, ship.vehicle, take=Camera().take, signer=None, clock=CLOCK
    ) as sender:
        yield sender


def test_a_viewer_gets_the_newest_picture_and_a_stranger_none(served: Served) -> None:
    assert served.ask("/api/picture", token=None)[0] == 401
    found: list[bytes] = []

    def comes() -> bool:
        status, body = served.ask("/api/picture", token="viewer")
        found.extend([body] if status == 200 else [])
        return bool(found)

    with sending(served):
        wait_until(comes, "no picture")
    assert found[0].startswith(b"\xff\xd8\xff")
    assert served.ask("/api/picture?vehicle=%0d%0a%c3%a4&after=x")[0] == 204


def test_the_picture_with_its_tag_for_the_operator_and_the_room(
    served: Served, chromium: Browser
) -> None:
    assert served.page.view_url is not None
    with looking(chromium) as operator, looking(chromium) as room:
        operator.goto(served.page.url)
        expect(operator.get_by_test_id("simulated")).to_be_visible()
        expect(operator.get_by_test_id("camera")).to_be_hidden()
        with sending(served) as sender:
            room.goto(f"{served.page.view_url}&stage=1")
            for page in (operator, room):
                expect(page.get_by_test_id("camera")).to_be_visible()
                expect(page.get_by_test_id("camera-words")).to_be_visible()
                expect(page.get_by_test_id("camera-words")).to_contain_text("s old")
                page.wait_for_function(f"() => ({GREEN})() > 100")
            assert serious_findings(operator) == []
            operator.get_by_test_id("camera-switch").click()
            room.get_by_test_id("camera-switch").click()
            expect(room.get_by_test_id("camera-words")).to_contain_text("hidden")
            before = -1
            while before != sender.sent:  # until nobody is sent any more
                before = sender.sent
                operator.wait_for_timeout(1500)
