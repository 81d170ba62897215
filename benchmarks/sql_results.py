"""What results cost: python -m benchmarks.sql_results [--tasks 20000] [--rounds 3] [--write]

The same tasks wait in a queue on an embedded Valkey. A worker runs them without results, with
results on the broker, in SQLite and in PostgreSQL, one after the other in each round. A rate is
measured from the first acknowledgement to the last, after its commit. In the same round:
SqlResults alone, and the driver's bare executemany into the same table, both with 128 rows a
commit. Prints one JSON object with the medians. The disk matters: --directory chooses it.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.queue import usage
from benchmarks.queue.server import Server
from blimp.clock import SystemClock
from blimp.processes import Child
from blimp.queue import TaskApp
from blimp.queue.extras.sql.database import SqlResults
from blimp.queue.protocol.record import Record, State
from blimp.queue.results.backend import ResultOptions
from tests.postgres import Postgres, find_postgres

PROJECT = Path(__file__).parents[1]
STORED = PROJECT / "benchmarks" / "results" / "sql_results.json"
BROKER, RESULTS = "SQL_RESULTS_BROKER", "SQL_RESULTS_RESULTS"
QUEUE = "sql-results"
BATCH = 128
DEADLINE_S = 600.0
DONE = "2026-11-20T13:02:03.477079+00:00"
COLUMNS = ("task_id", "status", "result", "date_done", "traceback", "children")

Rows = list[tuple[Any, ...]]

app = TaskApp(
    QUEUE,
    broker=os.environ.get(BROKER, "redis://localhost/0"),
    result_backend=os.environ.get(RESULTS) or None,
    transport="streams",
)


@app.task(name="echo")
def echo(number: int) -> int:
    return number


def worker_rate(server: Server, *, tasks: int, backend: str) -> dict[str, float]:
    """Return tasks a second, from the first acknowledgement to the last, and what each took.

    processor_us: of the worker alone; busy neighbours do not change it much.
    """
    server.clear()
    with TaskApp(QUEUE, broker=server.url, transport="streams") as sender:
        for number in range(tasks):
            sender.send_task("echo", (number,))
    worker = Child(
        name="worker",
        arguments=[
            sys.executable,
            "-m",
            "blimp.queue",
            "worker",
            "-A",
            "benchmarks.sql_results:app",
        ],
        environment={BROKER: server.url, RESULTS: backend, "PYTHONPATH": str(PROJECT)},
        stderr=subprocess.DEVNULL,
    )

    def wait_below(count: int) -> tuple[float, int]:
        until_s = time.monotonic() + DEADLINE_S
        while (left := int(server.client.xlen(f"blimp:queue:{QUEUE}:level:2"))) >= count:
            assert time.monotonic() < until_s, f"{left} tasks are left after {DEADLINE_S:g} s"
            time.sleep(0.01)
        return time.monotonic(), left

    try:
        began_s, left = wait_below(tasks)
        before_s = usage.processor_s(usage.tree(worker.pid))
        ended_s, _ = wait_below(1)
        used_s = usage.processor_s(usage.tree(worker.pid)) - before_s
    finally:
        worker.end(within_s=10.0)
    return {"per_s": left / (ended_s - began_s), "processor_us": 1e6 * used_s / left}


def alone_rate(url: str, *, rows: int) -> float:
    """Return results a second that SqlResults writes, encoding included."""
    results = SqlResults(url=url.removeprefix("db+"), clock=SystemClock(), options=ResultOptions())
    results.prepare()
    began_s = time.monotonic()
    for first in range(0, rows, BATCH):
        records = [
            Record(id=f"alone-{n}", state=State.SUCCESS, result=n, date_done=DONE)
            for n in range(first, min(rows, first + BATCH))
        ]
        assert all(results.write_many([(one.id, results.encode(one)) for one in records]))
    took_s = time.monotonic() - began_s
    results.close()
    return rows / took_s


def bare_rate(execute_many: Callable[[Rows], None], *, rows: int) -> float:
    """Return rows a second that the driver inserts, and commits."""
    began_s = time.monotonic()
    for first in range(0, rows, BATCH):
        numbers = range(first, min(rows, first + BATCH))
        execute_many([(f"bare-{n}", "SUCCESS", b"%d" % n, DONE[:26], None, None) for n in numbers])
    return rows / (time.monotonic() - began_s)


@contextmanager
def bare_sqlite(url: str) -> Iterator[Callable[[Rows], None]]:
    connection = sqlite3.connect(url.removeprefix("db+sqlite:///"))
    connection.execute("PRAGMA synchronous = FULL")
    marks = ", ".join("?" * len(COLUMNS))
    statement = f"INSERT INTO celery_taskmeta ({', '.join(COLUMNS)}) VALUES ({marks})"

    def execute_many(rows: Rows) -> None:
        with connection:
            connection.executemany(statement, rows)

    yield execute_many
    connection.close()


@contextmanager
def bare_postgres(url: str) -> Iterator[Callable[[Rows], None]]:
    marks = ", ".join(["%s"] * len(COLUMNS))
    statement = (
        f"INSERT INTO celery_taskmeta (id, {', '.join(COLUMNS)}) "
        f"VALUES (nextval('task_id_sequence'), {marks})"
    ).encode()
    with psycopg.connect(url.removeprefix("db+").replace("+psycopg", "")) as connection:

        def execute_many(rows: Rows) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)
            connection.commit()

        yield execute_many


def one_round(server: Server, *, tasks: int, sqlite: str, postgres: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "none": worker_rate(server, tasks=tasks, backend=""),
        "redis": worker_rate(server, tasks=tasks, backend=server.url),
    }
    none, redis = found["none"], found["redis"]
    found["redis_cost"] = {
        "throughput": 1.0 - redis["per_s"] / none["per_s"],
        "processor": redis["processor_us"] / none["processor_us"] - 1.0,
    }
    for name, url, bare in (
        ("sqlite", sqlite, bare_sqlite),
        ("postgresql", postgres, bare_postgres),
    ):
        worker = worker_rate(server, tasks=tasks, backend=url)
        alone = alone_rate(url, rows=tasks)
        with bare(url) as execute_many:
            floor = bare_rate(execute_many, rows=tasks)
        found[name] = {
            "worker": worker,
            "alone_per_s": alone,
            "bare_executemany_per_s": floor,
            "worker_to_bare": worker["per_s"] / floor,
            "alone_to_bare": alone / floor,
        }
    return found


def median(rounds: list[Any]) -> Any:
    """Return the medians of what has the same shape."""
    if isinstance(rounds[0], dict):
        return {name: median([one[name] for one in rounds]) for name in rounds[0]}
    middle = statistics.median(rounds)
    return round(middle) if middle > 10.0 else round(middle, 3)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql_results", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, metavar="N", help="default 20,000")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--directory", type=Path, help="where the databases are; default: /tmp")
    parser.add_argument("--write", action="store_true", help=f"into {STORED.name}")
    options = parser.parse_args()
    rounds, loads = [], []
    with tempfile.TemporaryDirectory(prefix="sql-", dir=options.directory) as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "p").mkdir()
        with (
            Server(directory) as server,
            Postgres(directory=directory / "p", programs=find_postgres()) as postgres,
        ):
            for number in range(options.rounds):
                loads.append(round(os.getloadavg()[0], 1))
                with postgres.database() as url:
                    sqlite = f"db+sqlite:///{directory}/{number}.db"
                    rounds.append(
                        one_round(server, tasks=options.tasks, sqlite=sqlite, postgres=url)
                    )
                print(f"round {number + 1}: {json.dumps(median(rounds[-1:]))}", file=sys.stderr)
    document = {
        "tasks": options.tasks,
        "rounds": options.rounds,
        "load_before_each": loads,
        "processors": os.cpu_count(),
        "medians": median(rounds),
    }
    text = json.dumps(document, indent=2)
    print(text)
    if options.write:
        STORED.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
