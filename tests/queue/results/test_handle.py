"""AsyncResult and GroupResult: what they return or raise."""

import pytest

from blimp.errors import Refused, TaskFailed
from blimp.queue import AsyncResult, GroupResult, TaskApp
from blimp.queue.protocol.record import Fault, Record, State


def end(app: TaskApp, id: str, state: State = State.SUCCESS, result: object = None) -> None:
    assert app.results is not None
    fault = None if state is State.SUCCESS else Fault(exc_type="ValueError", exc_message=["why"])
    assert app.results.store(Record(id=id, state=state, result=result, fault=fault))


def test_get_that_waits_for_ever_can_be_interrupted(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(record: object) -> None:
        raise KeyboardInterrupt

    assert app.results is not None
    app.results.store(Record(id="a", state=State.PROGRESS, result={"fraction": 0.5}))
    with pytest.raises(KeyboardInterrupt):
        AsyncResult("a", app=app).get(on_progress=interrupt)


def test_get_takes_celerys_words(app: TaskApp) -> None:
    end(app, "good", result=1)
    end(app, "bad", State.FAILURE)
    end(app, "no", State.REFUSED)
    handle = AsyncResult("bad", app=app)
    assert AsyncResult("good", app=app).get(5.0, True, 0.1) == 1
    error = handle.get(timeout=5.0, propagate=False, interval=0.1)
    assert isinstance(error, TaskFailed)
    assert "why" in str(error)
    assert isinstance(AsyncResult("no", app=app).get(propagate=False), Refused)
    with pytest.raises(TaskFailed, match="why"):
        handle.get()
    group = GroupResult("g", [AsyncResult("good", app=app), handle], app=app)
    assert group.get(propagate=False, interval=0.1)[0] == 1
