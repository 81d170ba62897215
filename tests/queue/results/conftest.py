"""Result backends in databases."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.queue.extras.sql.database import SqlResults
from blimp.queue.results.backend import ResultKeywords, result_options
from tests.forked import ran
from tests.mariadb import MariaDB
from tests.postgres import Postgres
from tests.queue.conftest import DEADLINE_S

DATABASES = ["sqlite", "postgresql", "mariadb"]
PROJECT = Path(__file__).parents[3]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """A database for tests that take tables of their own."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url(mariadb: MariaDB) -> Iterator[str]:
    with mariadb.database() as url:
        yield url


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """A `result_backend`: SQLite's is empty, a server's has the tables of other tests."""
    return database_of(request, request.param)


def database_of(request: pytest.FixtureRequest, dialect: str) -> str:
    if dialect == "sqlite":
        return f"db+sqlite:///{request.getfixturevalue('tmp_path')}/results.db"
    url: str = request.getfixturevalue(
        {"postgresql": "postgres_url", "mariadb": "mariadb_url"}[dialect]
    )
    return url


@pytest.fixture
def names() -> dict[str, str]:
    """Tables that no other test has."""
    number = next(_numbers)
    return {"task": f"task_{number}", "group": f"group_{number}"}


OpenResults = Callable[..., SqlResults]


@pytest.fixture
def open_results(database: str, names: dict[str, str]) -> Iterator[OpenResults]:
    """Opens results in the test's own tables, with the options of a TaskApp."""
    opened: list[SqlResults] = []

    def open_results(*, clock: Any = None, notify_server: Any = None, **options: Any) -> SqlResults:
        keywords: ResultKeywords = {"database_table_names": names, **options}  # type: ignore[typeddict-item]
        results = SqlResults(
            url=database.removeprefix("db+"),
            clock=clock or SystemClock(),
            options=result_options(keywords),
            notify_server=notify_server,
        )
        opened.append(results)
        return results

    yield open_results
    for results in opened:
        results.close()


def run_program(
    program: str, database: str, names: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a Python program that is given the database and the names of its tables."""
    return ran(
        [sys.executable, "-c", program, database.removeprefix("db+"), *names.values()],
        stdin=subprocess.DEVNULL,
        cwd=PROJECT,
        timeout=DEADLINE_S,
    )
