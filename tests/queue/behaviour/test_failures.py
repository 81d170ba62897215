"""A failure stays itself, however hard it is to write: its state, its type and its text."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from blimp.queue import State, TaskApp, chord, signature
from blimp.queue.protocol.record import Record
from tests.queue.conftest import DEADLINE_S, WorkerProcess
from tests.queue.failing_app import AGAIN, ERRORS
from tests.queue.server_view import Look

PLACES = ("thread", "loop", "process")
STATES = {"refused": State.REFUSED, "interrupted": State.INTERRUPTED}
TYPES = {
    "latin-1 file": "FileNotFoundError", "no notes": "NoNotes", "no str": "NoStr",
    "exits in str": "ExitsInStr", "no args": "NoArgs", "several": "ExceptionGroup",
    "syntax": "SyntaxError", "refused": "Refused",
    "interrupted": "Interrupted", "reject": "Reject",
}  # fmt: skip
TEXTS = {
    "latin-1": r"cannot parse caf\udce9.txt",
    "note": "it is noted",
    "cause": "it has a cause",
    "no str": "NoStr, whose str raises RuntimeError",
    "exits in str": "ExitsInStr, whose str raises SystemExit",
    "syntax": "bad",
    "several": r"[ValueError: caf\udce9.txt; NoStr: <NoStr, whose str raises",
    "large": "xxx",
    "many arguments": "0, 1, 2",
    "refused": r"no caf\udce9.txt",
    "refused at length": "nono",
    "reject": r"no caf\udce9.txt",
    "reject at length": "nono",
}


@pytest.fixture
def client(url: str) -> Iterator[TaskApp]:
    with TaskApp("failing", broker=url, result_backend=url) as app:
        yield app


@pytest.fixture
def worker(url: str, start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    options = "--process-workers 1"
    return start_worker(url, app="tests.queue.failing_app:app", options=options)


def check(kind: str, record: Record) -> str:
    """Return what is wrong with the record of a task that failed so, "" if nothing."""
    first = kind.split(" at length")[0].split(" without")[0]
    state = STATES.get(first, State.FAILURE)
    exc_type = TYPES.get(first, "ValueError")
    fault = record.fault
    if record.state is not state or fault is None or fault.exc_type != exc_type:
        return f"{kind}: {record.state} {fault!r:.200}"
    if TEXTS.get(kind, "") not in fault.text:
        return f"{kind}: says {fault.text:.200}"
    has_trace = state is State.FAILURE and first != "reject"
    if has_trace and exc_type not in (record.traceback or ""):
        return f"{kind}: its traceback is {record.traceback!r:.200}"
    return ""


def test_a_failure_is_reported_as_what_it_is_after_one_run(
    client: TaskApp, worker: WorkerProcess, tmp_path: Path, look: Look
) -> None:
    for place in PLACES:
        handles = {kind: client.send_task(f"{place}.fail", (kind,)) for kind in ERRORS}
        found = [check(kind, handle.wait(DEADLINE_S)) for kind, handle in handles.items()]
        assert [one for one in found if one] == [], place
        runs = {kind: (tmp_path / f"{one.id}.runs").read_text() for kind, one in handles.items()}
        assert {kind: text for kind, text in runs.items() if text != "run\n"} == {}, place
    assert not any("worker lost" in line for line in worker.lines), worker.lines
    assert worker.terminate() == 0
    rejected = [kind for kind in ERRORS if kind.startswith("reject")]
    assert look.dead("failing") == len(PLACES) * len(rejected)


def test_a_retry_because_of_it_is_a_retry(client: TaskApp, worker: WorkerProcess) -> None:
    handles = {
        (place, how, kind): client.send_task(f"{place}.retry", (f"{how}: {kind}",))
        for place, how, kind in product(PLACES, ("retry", "raise Retry", "raise"), AGAIN)
    }
    assert {case: one.get(DEADLINE_S) for case, one in handles.items()} == dict.fromkeys(handles, 1)


def test_a_retry_at_no_time_is_a_failure_that_names_it(
    client: TaskApp, worker: WorkerProcess
) -> None:
    """Or it would be acknowledged and never run again."""
    for place, countdown in product(("thread", "process"), ("nan", "inf", "soon", [1])):
        record = client.send_task(f"{place}.wait", (countdown,)).wait(DEADLINE_S)
        assert record.state is State.FAILURE, place
        named = countdown if countdown in ("nan", "inf") else repr(countdown)
        assert f"countdown of a retry is {named}" in record.reason, place


def test_a_chord_quotes_it_and_its_errbacks_begin(client: TaskApp, worker: WorkerProcess) -> None:
    kinds = ["latin-1", "no str", "large", "refused", "reject"]
    for place, kind in product(PLACES, kinds):
        part = signature(f"{place}.fail", (kind,), app=client).on_error(
            signature("heard", app=client, immutable=True).set(task_id=f"{place}-{kind}")
        )
        handle = chord([part], signature("heard", app=client))()
        record = handle.wait(DEADLINE_S)
        assert record.fault is not None
        assert record.fault.exc_type == "ChordError"
        assert TYPES.get(kind, "ValueError") in record.reason
        assert client.result(f"{place}-{kind}").get(DEADLINE_S) == "heard"


def test_what_a_process_cannot_send_is_a_failure_and_not_the_end_of_the_process(
    client: TaskApp, worker: WorkerProcess, tmp_path: Path
) -> None:
    for name, kind in (
        ("replaced", "object"), ("replaced", "latin-1"), ("replaced", "key"),
        ("progress", "object"), ("progress", "latin-1"), ("progress", "large"),
    ):  # fmt: skip
        handle = client.send_task(f"process.{name}", (kind,))
        record = handle.wait(DEADLINE_S)
        assert record.fault is not None, kind
        assert record.fault.exc_type == "ResultError", kind
        assert (tmp_path / f"{handle.id}.runs").read_text() == "run\n", kind
    for name in ("replaced", "progress"):  # a number of any length can be sent
        assert client.send_task(f"process.{name}", ("number",)).get(DEADLINE_S) in ("heard", True)
    assert not any("worker lost" in line for line in worker.lines), worker.lines
