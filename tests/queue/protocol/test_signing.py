"""Seals, windows and signatures, without a broker."""

import os
from typing import Any

import pytest

from blimp.errors import ConfigError, Copied, NotGenuine
from blimp.queue.protocol.message import AGAIN, LIFE, TaskMessage, write_message
from blimp.queue.protocol.signing import HEADER, MOST_KEYS, MOST_SEALS, SEAL, Signer, Window, sealed

KEY, OTHER = "k" * 16, "x" * 16


def refuses(signer: Signer, headers: dict[str, Any], body: bytes, *, queue: str = "q") -> bool:
    try:
        signer.check(headers, body, queue=queue)
    except NotGenuine:
        return True
    return False


def test_a_signature_covers_all_that_decides_what_a_message_does() -> None:
    signer = Signer(KEY)
    message = TaskMessage(
        id="a", task="t", queue="q", retries=1, eta_s=1e9, expires_s=2e9, issued_ms=1, ttl_s=2.0,
        coalesce="c", coalesce_number=3, group_id="g", group_index=4, root_id="r", parent_id="p",
        timelimit=(5.0, 4.0), nesting=6,
        headers={"blimp_authority": "7", "blimp_fair": "f", "blimp_vehicle": "v"},
    )  # fmt: skip
    headers, body = write_message(message, signer=signer)
    assert not refuses(signer, headers, body)
    assert refuses(signer, headers, body + b" ")
    assert refuses(signer, headers, body, queue="other")
    decide = {
        "task", "id", "retries", "eta", "expires", "group", "group_index", "root_id", "parent_id",
        "timelimit", "ignore_result", "replaced_task_nesting", "compression", "blimp_issued_ms",
        "blimp_ttl_s", "blimp_coalesce", "blimp_number", "blimp_authority", "blimp_fair",
        "blimp_vehicle", SEAL, "blimp_new",
    }  # fmt: skip
    assert {name for name in decide if not refuses(signer, {**headers, name: "x"}, body)} == set()
    for signature in (3, "\ud800"):
        assert refuses(signer, {**headers, HEADER: signature}, body)
    assert refuses(signer, {**headers, "eta": {1}}, body)  # what JSON cannot hold
    on_the_way = {"blimp_delivery": 2, AGAIN: True, LIFE: 1, "argsrepr": "(…)"}
    assert not refuses(signer, {**headers, **on_the_way}, body)


def test_a_signature_covers_all_of_a_broadcast_and_its_exchange() -> None:
    signer = Signer(KEY)
    stop = {"id": "a", "name": "estop", "payload": {"why": "test"}}
    document = sealed(stop, signer, exchange="here", now_s=lambda: 5.0)
    signature = document.pop("signature")
    signer.check_document(document, signature, place="here")
    changed = [document | {name: "x"} for name in ("id", "name", "payload", "seal", "sent_s")]
    for other, given, place in (
        *((one, signature, "here") for one in changed),
        (document, signature, "there"),
        (document, "", "here"),
    ):
        with pytest.raises(NotGenuine):
            signer.check_document(other, given, place=place)


def test_a_key_is_long_enough_and_in_no_text() -> None:
    with pytest.raises(ConfigError, match="15 bytes, must be 16"):
        Signer([KEY, "x" * 15])
    assert KEY not in repr(Signer(KEY))


def test_at_most_four_signatures_are_looked_at() -> None:
    signer = Signer(KEY)
    headers, body = write_message(TaskMessage(id="a", task="t", queue="q"), signer=signer)
    good = headers[HEADER]
    headers[HEADER] = " ".join(["0" * 64] * (MOST_KEYS - 1) + [good])
    assert not refuses(signer, headers, body)
    headers[HEADER] = " ".join(["0" * 64] * MOST_KEYS + [good])
    assert refuses(signer, headers, body)


def test_no_two_messages_have_the_same_seal() -> None:
    signer, other = Signer(KEY), Signer(KEY)
    seals = [one.seal() for one in (signer, other) for _ in range(3)]
    assert len(set(seals)) == 6


def test_a_fork_is_a_signer_of_its_own() -> None:
    signer = Signer(KEY)
    before = signer.seal()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, signer.seal().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    ours = signer.seal()
    assert before.partition("-")[0] == ours.partition("-")[0] != theirs.partition("-")[0]


def test_the_same_entry_comes_again_and_a_copy_does_not() -> None:
    window = Window()
    window.admit("a-1", "stream 1-0")
    window.admit("a-1", "stream 1-0")  # its broker delivers it again
    window.admit("a-2", "stream 2-0")
    with pytest.raises(Copied, match="number 1 of its signer"):
        window.admit("a-1", "stream 3-0")
    with pytest.raises(Copied):  # and again
        window.admit("a-1", "stream 3-0")
    window.forget("a-1")
    window.admit("a-1", "stream 3-0")


def test_a_window_keeps_the_latest() -> None:
    window = Window()
    for number in range(MOST_SEALS + 1):
        window.admit(f"a-{number}", "here")
    with pytest.raises(Copied):
        window.admit("a-1", "there")
    window.admit("a-0", "there")  # forgotten: it was the oldest


def test_a_message_without_a_seal_is_of_an_older_version() -> None:
    signer = Signer(KEY)
    headers, body = write_message(TaskMessage(id="a", task="t", queue="q"), signer=signer)
    signer.check(headers, body, queue="q")
    del headers[SEAL]
    headers["blimp_signature"] = signer.sign(headers, body, queue="q")
    with pytest.raises(NotGenuine, match="of an older version"):
        signer.check(headers, body, queue="q")


def test_a_message_that_is_carried_on_has_a_seal_of_its_own() -> None:
    signer = Signer(KEY)
    first, _ = write_message(TaskMessage(id="a", task="t", queue="q"), signer=signer)
    again: dict[str, Any]
    again, _ = write_message(TaskMessage(id="a", task="t", queue="q", headers=first), signer=signer)
    assert again[SEAL] != first[SEAL]
    before = again[SEAL]
    signer.sign_again(again, b"[]", queue="q")  # the answer to the first was lost
    assert again[SEAL] != before
    signer.check(again, b"[]", queue="q")


def test_who_has_only_the_old_key_reads_what_is_signed_while_keys_rotate() -> None:
    old, new, rotating = Signer(OTHER), Signer(KEY), Signer([KEY, OTHER])
    for data in (b'{"a":1}', b"[1,2]"):
        signed = rotating.append_to(data, place="here")
        for reader in (old, new, rotating):
            reader.check_appended(signed, place="here")
            with pytest.raises(NotGenuine, match="there: its signature is wrong"):
                reader.check_appended(signed, place="there")
            with pytest.raises(NotGenuine, match="is wrong"):
                reader.check_appended(signed.replace(b"1", b"7", 1), place="here")
        with pytest.raises(NotGenuine, match="is wrong"):
            Signer("n" * 16).check_appended(signed, place="here")
        with pytest.raises(NotGenuine, match=r"is not signed|is wrong"):
            old.check_appended(data, place="here")


@pytest.mark.parametrize("mine", [[KEY], [OTHER], [OTHER, KEY], [KEY, OTHER]])
def test_while_keys_rotate_either_end_may_be_the_first_to_have_the_new_one(mine: list[str]) -> None:
    """Or no emergency stop reaches a ship whose worker was not restarted yet."""
    sender, receiver = Signer([KEY, OTHER]), Signer(mine)
    document = {"id": "a", "name": "estop", "payload": {}}
    receiver.check_document(document, sender.sign_document(document, place="here"), place="here")
    message = TaskMessage(id="a", task="land", queue="q")
    headers, body = write_message(message, signer=sender)
    receiver.check(headers, body, queue="q")
    old, body = write_message(message, signer=Signer(OTHER))
    assert refuses(receiver, old, body) is (OTHER not in mine)  # of a sender with the old one alone
    with pytest.raises(NotGenuine):
        Signer("n" * 16).check(headers, body, queue="q")
