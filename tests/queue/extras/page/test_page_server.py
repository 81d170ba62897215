"""The queue's page in a real browser, with a real worker."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from blimp.queue import TaskApp
from tests.broker import EmbeddedBroker
from tests.browser import WITHIN_MS, context_of, errors_of, serious_findings, too_wide_px
from tests.queue.conftest import WorkerProcess
from tests.queue.extras.page.conftest import APP, PageProcess
from tests.queue.page_app import MARKUP

SCHEMES: Any = ("light", "dark")


# Playwright runs an event loop in this thread, and the test sends by plain calls.
@pytest.mark.filterwarnings("ignore:.* waits for the server:RuntimeWarning")
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_a_failure_is_read_and_sent_again_and_a_schedule_runs_by_click(
    own_broker: EmbeddedBroker,
    start_worker: Callable[..., WorkerProcess],
    start_page: Callable[..., PageProcess],
    chromium: Browser,
    tmp_path: Path,
    width: int,
    height: int,
) -> None:
    url = own_broker.url
    worker = start_worker(url, app=APP)
    served = start_page(url)
    with (
        TaskApp("shop", broker=url, result_backend=url) as shop,
        context_of(chromium, viewport={"width": width, "height": height}) as context,
    ):
        for _ in range(2):
            failed = shop.send_task("shop.pay", ["order"], {"by": MARKUP})
            failed.wait(timeout=WITHIN_MS / 1e3)
        page = context.new_page()
        wrong = errors_of(page)
        page.goto(served.url)
        by, said, task = (
            page.get_by_test_id,
            page.locator("#said"),
            page.get_by_test_id("queue-task"),
        )
        expect(page.locator("main")).to_contain_text(f"no money {MARKUP}")
        equal = page.locator("tr", has_text="no money")
        expect(equal).to_have_count(1)
        expect(equal.locator("[data-title=times]")).to_have_text("2")
        assert "token" not in page.url

        by(f"queue-show-{failed.id}").click()
        expect(task).to_contain_text("Traceback (most recent call last)")
        expect(task).to_contain_text('raise ValueError(f"no money {MARKUP}")\nValueError: ')
        expect(task).to_contain_text(f"'order', by=\"{MARKUP}\"")
        expect(task).to_be_in_viewport()
        assert page.evaluate("window.broken") is None
        assert page.locator("main img, main script").count() == 0
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert serious_findings(page) == []
        assert too_wide_px(page) <= 0, "a page must not have to scroll sideways"

        (tmp_path / "order").touch()
        by(f"queue-retry-{failed.id}").click()
        expect(said).to_have_text(re.compile(r"sent again as [\w-]{36}$"))
        again = (said.text_content() or "")[-36:]
        assert shop.result(again).get(timeout=WITHIN_MS / 1e3) == f"paid by {MARKUP}"
        page.locator("[name=task-id]").fill(again)
        by("queue-find").click()
        expect(task).to_contain_text(again)
        expect(task).to_contain_text(f'result"paid by {MARKUP}"')

        ended = page.locator("[aria-label^=Tasks] tr", has_text="shop.pay")
        expect(ended).to_have_text("shop.pay312")  # received, succeeded, failed
        rate = page.locator(".rates polyline").first
        expect(rate).to_have_attribute("points", re.compile(r"\d,\d.* \d"))

        by("queue-run-schedule-shop.report").click()
        expect(said).to_have_text(re.compile(r"sent as [\w-]{36}$"))
        ran = (said.text_content() or "")[-36:]
        assert shop.result(ran).get(timeout=WITHIN_MS / 1e3) == "report of noon"
        by("queue-pause-schedule-shop.report").click()
        by("queue-resume-schedule-shop.report").wait_for()

        by("queue-pause-shop").click()
        by("queue-resume-shop").wait_for()
        waits = shop.send_task("shop.pay", ["order"])
        page.locator("[name=task-id]").fill(waits.id)
        by("queue-find").click()
        expect(task).to_contain_text("queue 'shop' is paused")
        page.once("dialog", lambda dialog: dialog.dismiss())
        by("queue-purge-shop").click()
        assert said.text_content() == "", "it does not wait for a yes"
        page.once("dialog", lambda dialog: dialog.accept())
        by("queue-purge-shop").click()
        expect(said).to_have_text("purge shop: 1 dropped")
        assert wrong == []

        worker.terminate()
        own_broker.stop()
        expect(page.locator("#lost")).to_contain_text(str(own_broker.directory))
        expect(page.locator("#lost")).to_be_visible()
        expect(by("queue-resume-shop")).to_be_disabled()
        own_broker.start()
        expect(page.locator("#lost")).to_be_hidden()
        expect(by("queue-purge-shop")).to_be_enabled()
