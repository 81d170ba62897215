"""The site of `make docs` in a browser: what its search finds, and what its pages show."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import chromium, context_of

__all__ = ["chromium"]

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.timeout(600)]
WORDS = ("battery", "geofence", "failsafe", "retry", "takeoff")  # each is a property's name, too
BEHIND = ("reference/", "changelog/", "decisions/")  # what search shows after the chapters
CUT = """() => [...document.querySelectorAll("pre > code")]
  .filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.innerText.split("\\n", 1)[0])"""


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def first_found(page: Page, address: str, word: str) -> str:
    """Return where the first result of a search leads."""
    page.goto(f"{address}?q={word}")
    marked = page.locator(".md-search-result__item mark", has_text=word).first
    marked.wait_for(state="attached")
    return page.locator(".md-search-result__link").first.get_attribute("href") or ""


def test_search_finds_the_chapter_and_code_is_not_cut(tmp_path: Path, chromium: Browser) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    pages = {
        path.parent.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*.html")
    }
    with_code = [
        name
        for name, path in sorted(pages.items())
        if not f"{name}/".startswith(BEHIND) and "<pre" in path.read_text("utf-8")
    ]
    assert len(with_code) > 20
    with (
        served(tmp_path) as address,
        context_of(chromium, viewport={"width": 1280, "height": 720}) as context,
    ):
        page = context.new_page()
        cut = {}
        for name in with_code:
            page.goto(f"{address}{name}/")
            if found := page.evaluate(CUT):
                cut[name] = found
        assert cut == {}
        first = {word: first_found(page, address, word) for word in WORDS}
        wrong = {word: at for word, at in first.items() if at[len(address) :].startswith(BEHIND)}
        assert wrong == {}
