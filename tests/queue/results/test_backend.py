"""Which backend a `result_backend` names, and what is said about one that is none."""

from pathlib import Path
from typing import Any

import pytest

from blimp.errors import ConfigError, ResultError
from blimp.queue import TaskApp
from blimp.queue.protocol.record import Record, State
from blimp.queue.results.backend import database_url


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("sqlite:///weather.db", "db+sqlite:///weather.db"),
        ("sqlite://", "db+sqlite://"),
        ("postgresql://h/weather", "db+postgresql://h/weather"),
        ("postgres://h/weather", "db+postgresql://h/weather"),
        ("postgresql+psycopg://me:secret@h/w", "db+postgresql+psycopg://me:***@h/w"),
    ],
)
def test_a_databases_url_without_its_prefix_is_reported_with_it(url: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="result_backend") as raised:
        TaskApp("weather", broker="redis://h", result_backend=url)
    assert repr(meant) in str(raised.value)
    assert "broker" not in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://h/w", "weather.db", "amqp://h", "redis://h:port", ""])
def test_what_names_no_backend_is_reported_without_a_word_about_a_broker(url: str) -> None:
    with pytest.raises(ConfigError, match="result_backend") as raised:
        TaskApp("weather", broker="redis://h", result_backend=url)
    assert "broker" not in str(raised.value)


def test_redis_urls_and_databases_are_distinguished() -> None:
    assert database_url(None) is None
    assert database_url("redis://a;redis://b") is None
    assert database_url(["redis://a", "unix:///b"]) is None
    assert database_url("db+sqlite:///x;y.db") == "sqlite:///x;y.db"
    assert database_url(["db+sqlite:///x"]) == "sqlite:///x"
    with pytest.raises(ConfigError, match="one database"):
        database_url(["db+sqlite:///x", "redis://h"])


@pytest.mark.parametrize("limit", [0, -1, 999, "big", 1.5, True])
def test_a_result_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="result_limit_bytes"):
        TaskApp("weather", broker="memory://", result_limit_bytes=limit)


@pytest.mark.parametrize("backend", ["redis://h", "db+sqlite:///{}/r.db"])
def test_results_may_have_a_limit_of_their_own(backend: str, tmp_path: Path) -> None:
    backend = backend.format(tmp_path)
    record = Record(id="a", state=State.SUCCESS, result="x" * 3000, name="read")
    with TaskApp("w", broker="redis://h", result_backend=backend, result_limit_bytes=2000) as app:
        assert app.results is not None
        with pytest.raises(
            ResultError, match=r"read returned \d+ bytes as JSON: the limit is 2000"
        ):
            app.results.encode(record)
    with TaskApp("w", broker="redis://h", result_backend=backend, limit_bytes=4000) as app:
        assert app.results is not None
        assert len(app.results.encode(record)) > 3000
