"""An unmodified Celery whose results are JSON shares a database with us, both ways."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.clock import SystemClock
from blimp.queue.extras.sql.database import SqlResults
from blimp.queue.protocol.record import Fault, Record, State
from blimp.queue.results.backend import ResultOptions
from tests.interop.guest import PROGRAMS, Guest, find_guest
from tests.queue.results.conftest import database, mariadb_url, names, postgres_url

find_guest()

__all__ = ["database", "mariadb_url", "names", "postgres_url"]
DONE = "2026-11-20T13:02:03.477079+00:00"
FAULT = Fault(exc_type="Refused", exc_message=["the battery is low"])


@pytest.fixture
def results(database: str, names: dict[str, str]) -> Iterator[SqlResults]:
    options = ResultOptions(result_extended=True, database_table_names=names)
    results = SqlResults(url=database.removeprefix("db+"), clock=SystemClock(), options=options)
    yield results
    results.close()


def test_celery_reads_what_we_write(
    results: SqlResults, database: str, names: dict[str, str], guest: Guest, tmp_path: Path
) -> None:
    results.store(
        Record(
            id="ours",
            state=State.SUCCESS,
            result={"x": "ä"},
            date_done=DONE,
            name="weather.read",
            args=["pad"],
            kwargs={},
            retries=2,
            queue="weather",
        )
    )
    results.store(Record(id="refused", state=State.REFUSED, fault=FAULT, date_done=DONE))
    results.store(Record(id="late", state=State.EXPIRED, fault=FAULT, date_done=DONE))
    results.store(Record(id="begun", state=State.PROGRESS, result={"fraction": 0.4}))
    words = ("read", database, *names.values(), "ours", "refused", "late", "begun", "unknown")
    lines = guest.ask(PROGRAMS / "database.py", *words).splitlines()
    ours, refused, late, begun, unknown = (json.loads(line) for line in lines)
    assert (ours["state"], ours["value"]) == ("SUCCESS", {"x": "ä"})
    assert (ours["name"], ours["args"], ours["queue"]) == ("weather.read", ["pad"], "weather")
    assert ours["retries"] == 2
    assert ours["date"].startswith("2026-11-20T13:02:03.477079")
    assert (refused["state"], refused["value"]) == ("FAILURE", "Refused('the battery is low')")
    assert (late["state"], late["value"]) == ("REVOKED", "Refused('the battery is low')")
    assert (begun["state"], begun["value"]) == ("PROGRESS", {"fraction": 0.4})
    assert unknown["state"] == "PENDING"


def test_we_read_what_celery_writes_in_the_tables_that_it_made(
    results: SqlResults, database: str, names: dict[str, str], guest: Guest
) -> None:
    guest.ask(PROGRAMS / "database.py", "write", database, *names.values())
    found = results.get("theirs")
    assert (found.state, found.result) == (State.SUCCESS, [1, "ä"])
    assert found.date_done is not None
    broken = results.get("broken")
    assert (broken.state, broken.reason) == (State.FAILURE, "the valve is shut")
    assert not results.store(Record(id="theirs", state=State.FAILURE))
    assert results.store(Record(id="more", state=State.SUCCESS, result=1))
    assert results.get("more").result == 1
