"""Signatures as a program writes them."""

import pytest

from blimp.errors import ConfigError, MessageError
from blimp.queue import (
    TaskApp,
    chain,
    chord,
    group,
    signature,
)
from tests.queue.canvas.sums import Sums
from tests.queue.conftest import DEADLINE_S, working


@pytest.fixture
def sums(app: TaskApp) -> Sums:
    return Sums(app)


def test_what_is_no_signature_is_refused() -> None:
    with pytest.raises(MessageError, match=r"tasks\[1\] is int, must be a signature"):
        chain(signature("t"), 3)
    with pytest.raises(MessageError, match="a group has no link"):
        group(signature("t")).link(signature("u"))
    with pytest.raises(ConfigError, match="has no app"):
        signature("t").delay()
    with pytest.raises(MessageError, match="Invalid enum value 'chunks'"):
        signature({"task": "t", "subtask_type": "chunks"})


def test_a_canvas_has_the_arguments_it_was_cloned_with(sums: Sums) -> None:
    made = {
        "chain": chain(sums.add.s(1), sums.add.s(1)),
        "group": group(sums.add.s(1), sums.add.s(2)),
        "chord": chord([sums.add.s(1), sums.add.s(2)], sums.total.s()),
    }
    with working(sums.app):
        sent = {name: one.clone((5,)).apply_async() for name, one in made.items()}
        found = {name: one.get(timeout=DEADLINE_S) for name, one in sent.items()}
    assert found == {"chain": 7, "group": [6, 7], "chord": 13}


def test_a_group_of_none_is_sent_alone_without_an_app() -> None:
    for nothing in (group([]), group(), group(group([])), group(iter([]))):
        handle = nothing.apply_async()
        assert handle.get(timeout=0) == []
        assert len(handle) == handle.completed_count == 0
        assert handle.ready()
        assert handle.successful()
        assert nothing.delay().join() == []


def test_a_group_of_none_of_an_app_is_an_empty_list(app: TaskApp) -> None:
    assert group([], app=app).delay().get(timeout=DEADLINE_S) == []
    with pytest.raises(MessageError, match="a chain needs a link"):
        chain(group([]), app=app).delay()
