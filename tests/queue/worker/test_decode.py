"""What is stored of a message that is not run."""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.errors import Copied, MessageError, NotGenuine, UnknownTask
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.signing import SEAL
from blimp.queue.worker.aside import AsideRule
from blimp.queue.worker.decode import Decoder
from tests.queue.conftest import Silence

HEADERS = {"id": "a", "task": "t", SEAL: "s-1"}


@pytest.fixture
def app() -> Iterator[TaskApp]:
    nowhere = "redis+socket:///nowhere?virtual_host=0"
    with TaskApp("ship", broker=nowhere, signing_key="k" * 16) as app:
        yield app


def make_decoder(app: TaskApp, counts: Counter[str]) -> Decoder:
    aside = AsideRule(app=app, counts=counts, log=Silence())
    return Decoder(app=app, worker="w", aside=aside, counts=counts, log=Silence())


@pytest.mark.parametrize(
    ("error", "stored", "kind"),
    [
        (MessageError("no"), ["signed"], "unreadable"),
        (UnknownTask("no"), ["signed"], "unknown_task"),
        (NotGenuine("no"), ["unsigned"], "not_genuine"),  # only its sender believes it
        (Copied("no"), [], "copied"),  # its id is that of the one that was accepted
    ],
)
def test_only_of_what_is_genuine_a_failure_is_signed(
    app: TaskApp, error: MessageError, stored: list[str], kind: str
) -> None:
    done: list[str] = []
    results: Any = SimpleNamespace(
        store=lambda _: done.append("signed"), write=lambda *_: done.append("unsigned")
    )
    app.results = results
    assert app.signer is not None
    app.signer.window.admit("s-1", "here")
    counts: Counter[str] = Counter()
    decoder = make_decoder(app, counts)
    decoder._rejected(error, queue="q", headers=HEADERS)
    assert (done, counts) == (stored, {kind: 1})
    if stored == ["signed"]:
        app.signer.window.admit("s-1", "there")  # a person may send it again
    else:
        with pytest.raises(Copied):
            app.signer.window.admit("s-1", "there")
    app.results = None


def test_a_follower_of_what_fails_goes_on_and_it_is_a_dead_letter(app: TaskApp) -> None:
    decoder = make_decoder(app, Counter())
    message = TaskMessage(id="a", task="t", queue="q")
    outcome = decoder._failing(message, UnknownTask("no task 't'")).run()
    assert (outcome.state, outcome.dead) == ("FAILURE", "no task 't'")
