"""Which worker a remote command is for, and what its signature covers."""

from typing import Any

import msgspec
import pytest

from blimp.errors import NotGenuine
from blimp.queue.broadcast.listener import EXCHANGE
from blimp.queue.celery.control.command import Command, ReplyTo, is_for
from blimp.queue.protocol.signing import Signer

SIGNER = Signer("k" * 16)
COMMAND = Command(
    method="shutdown",
    arguments={"a": 1},
    destination=["w"],
    pattern="w*",
    ticket="t",
    reply_to=ReplyTo(exchange="reply.celery.pidbox", routing_key="r"),
    app="tests",
    sent_s=5.0,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "ping"),
        ("arguments", {"a": 2}),
        ("destination", None),
        ("pattern", None),
        ("matcher", "glob"),
        ("ticket", "u"),
        ("reply_to", None),
        ("app", None),
        ("sent_s", 6.0),
    ],
)
def test_a_signature_covers_all_of_a_command(name: str, value: Any) -> None:
    signature = SIGNER.sign_document(COMMAND.signed_part(), place=EXCHANGE)
    signed = msgspec.structs.replace(COMMAND, signature=signature)
    SIGNER.check_document(signed.signed_part(), signature, place=EXCHANGE)
    changed = msgspec.structs.replace(signed, **{name: value})
    with pytest.raises(NotGenuine):
        SIGNER.check_document(changed.signed_part(), signature, place=EXCHANGE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"app": "tests"}, True),
        ({"app": "other"}, False),
        ({"destination": ["w", "v"]}, True),
        ({"destination": ["v"]}, False),
        ({"destination": ["w"], "app": "other"}, False),
        ({"pattern": "w*"}, True),
        ({"pattern": "v*"}, False),
    ],
)
def test_a_worker_runs_what_is_for_it(changes: dict[str, Any], expected: bool) -> None:
    command = Command(method="ping", **changes)
    assert is_for(command, worker="w", app="tests", signer=None) is expected
