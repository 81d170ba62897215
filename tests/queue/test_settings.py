"""What an app and a worker are made with, read once."""

from typing import Any

import pytest

from blimp.errors import ConfigError
from blimp.queue import TaskApp
from blimp.queue.results.backend import ResultOptions
from blimp.queue.settings import AppKeywords, AppSettings, WorkerKeywords, WorkerSettings
from blimp.queue.worker.worker import Worker
from tests.queue.conftest import Silence

SECRET = "s" * 20


def test_settings_are_what_was_given_and_show_no_key() -> None:
    with TaskApp(
        "tests", broker="memory://", timeout_s=3.0, signing_key=SECRET, result_extended=True
    ) as app:
        assert app.settings.timeout_s == app.timeout_s == 3.0
        assert app.settings.results.result_extended
        assert app.settings.limit_bytes == app.limit_bytes
        assert SECRET not in repr(app.settings)
        with pytest.raises(AttributeError):
            app.settings.timeout_s = 4.0  # type: ignore[misc]


def test_each_setting_is_a_keyword_that_type_checkers_know() -> None:
    settings = {*AppSettings.__struct_fields__} - {"results"} | {*ResultOptions.__struct_fields__}
    assert {*AppKeywords.__annotations__} == settings
    assert {*WorkerKeywords.__annotations__} == {*WorkerSettings.__struct_fields__}


def test_a_workers_settings_are_what_was_given() -> None:
    with TaskApp("tests", broker="memory://") as app:
        worker = Worker(app=app, name="w", sync_workers=3, log=Silence())
        assert (worker.settings.name, worker.settings.sync_workers) == ("w", 3)
        assert worker.sizes.sync_workers == 3
        with pytest.raises(TypeError, match="sinc_workers"):
            Worker(app=app, sinc_workers=3)  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="queues: Expected `array`, got `str`"):
            Worker(app=app, queues="default")
        with pytest.raises(ConfigError, match="sync_workers: Expected `int` >= 1"):
            Worker(app=app, sync_workers=0)
        with pytest.raises(ConfigError, match="grace_s: Expected `float` >= 0"):
            Worker(app=app, grace_s=-1.0)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"time_out_s": 1.0}, "time_out_s"),
        ({"results": 1}, "results"),
        ({"timeout_s": "soon"}, "timeout_s: Expected `float`, got `str`"),
        ({"max_dead_letters": -1}, "max_dead_letters: Expected `int` >= 0"),
        ({"queue": 7}, r"queue: Expected `str \| null`, got `int`"),
        ({"failover_strategy": min}, "failover_strategy: Expected `str`"),
        ({"result_expires_s": "a"}, "result_expires_s"),
        ({"remote_control": "some"}, "remote_control 'some': must be 'all', 'inspect' or 'off'"),
        ({"transport": "smoke"}, "transport 'smoke': must be one of"),
    ],
)
def test_a_wrong_one_is_named(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TaskApp("tests", broker="memory://", **keywords)
