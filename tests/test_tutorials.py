"""The tutorials' sessions, run as a reader types them."""

import doctest
import re
import sys
from pathlib import Path

import pytest

from tests.broker import EmbeddedBroker

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
BROKER = "redis://localhost:6379/0"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["student", pytest.param("balloon", marks=pytest.mark.long)])
def test_a_reader_sees_what_the_page_shows(page: str) -> None:
    path = str(TUTORIALS / f"{page}.md")
    tried = doctest.testfile(path, module_relative=False, encoding="utf-8")
    assert (tried.failed, tried.attempted > 20) == (0, True)


@pytest.mark.timeout(300)
def test_a_back_end_developer_sees_what_the_page_shows(
    broker_server: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (TUTORIALS / "back-end.md").read_text("utf-8")
    module = re.search(r'```py title="garden.py"\n(.*?)```', text, re.DOTALL)
    assert module is not None
    assert BROKER in module[1]
    (tmp_path / "garden.py").write_text(module[1].replace(BROKER, broker_server.url), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "garden", raising=False)
    session = doctest.DocTestParser().get_doctest(text, {}, "back-end.md", None, 0)
    try:
        tried = doctest.DocTestRunner().run(session, clear_globs=False)
    finally:
        sys.modules.pop("garden", None)
        worker = session.globs.get("worker")
        if worker is not None and worker.poll() is None:
            worker.kill()
            worker.wait()
    assert (tried.failed, tried.attempted > 20) == (0, True)
