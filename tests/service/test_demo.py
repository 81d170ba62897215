"""What a demo's report says of the commands that did not succeed."""

from blimp.service.demo import ended


def test_a_task_that_did_not_succeed_is_named_with_its_reason() -> None:
    late = {"task": "blimp.ping", "state": "EXPIRED", "reason": "older than 2 s"}
    tasks = {"sent": 206, "succeeded": 203, "unsuccessful": [late, late]}
    words = "203 of 206 succeeded, 2 blimp.ping EXPIRED: older than 2 s, 1 not sent"
    assert ended(tasks) == words
    assert ended(tasks | {"sent": 203, "unsuccessful": []}) == "203 of 203 succeeded"
