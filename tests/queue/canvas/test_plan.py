"""A canvas that cannot be sent is refused whole, with the reason."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from blimp.errors import MessageError
from blimp.queue import (
    TaskApp,
    chain,
    chord,
    group,
    signature,
)
from blimp.queue.protocol.embed import MOST_DEEP
from tests.queue.server_view import Look

LATE = datetime.max.replace(tzinfo=UTC)


def deep(levels: int) -> Any:
    found: Any = signature("t")
    for _ in range(levels):
        found = signature("t").on_error(found)
    return found


def cyclic() -> Any:
    found = signature("t")
    found.link(found)
    return found


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: chord([signature("t")]), r"Expected `object`, got `null` - at `\$.body`"),
        (lambda: chain(), "a chain needs a link"),
        (lambda: deep(MOST_DEEP + 1), f"nested deeper than {MOST_DEEP}"),
        (cyclic, f"nested deeper than {MOST_DEEP}"),
        (lambda: group(signature("t") for _ in range(20_001)), "more than 20000 signatures"),
        (lambda: signature("t", coalesce="x") | signature("u"), "has 'coalesce'"),
        (lambda: signature("t", queue=3), r"got `int` - at `\$.options.queue`"),
        (lambda: signature("t", countdown="soon"), "'countdown' is 'soon': Expected `float"),
        (lambda: signature("t", eta="soon"), "must be an ISO 8601 time"),
        (lambda: signature("t", eta=LATE), "'eta or countdown': must be before the year"),
        (lambda: signature("t", countdown=1e12), "must be before the year 9999"),
        (lambda: signature("t", expires=LATE), "'expires': must be before the year 9999"),
        (lambda: chain(signature("t"), group([signature("u")] * 2), link=[signature("w")]),
         "a group has no link"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_anything_is_sent(
    app: TaskApp, look: Look, make: Callable[[], Any], complaint: str
) -> None:
    with pytest.raises(MessageError, match=complaint):
        app.send_canvas(make())
    assert look.waiting() == 0
