"""Bytes that Celery 5.7.0 with kombu 5.7.0 put on the wire, and a way to vary them.

Recorded from `app.send_task("weather.read", args=("pad",), kwargs={"n": 2}, countdown=1.5,
expires=30)` with LRANGE on the queue.
"""

import base64
import json
from typing import Any

CELERY_MESSAGE = (
    b'{"body": "W1sicGFkIl0sIHsibiI6IDJ9LCB7ImNhbGxiYWNrcyI6IG51bGwsICJlcnJiYWNrcyI6IG51bGws'
    b'ICJjaGFpbiI6IG51bGwsICJjaG9yZCI6IG51bGx9XQ==", "content-encoding": "utf-8", '
    b'"content-type": "application/json", "headers": {"lang": "py", "task": "weather.read", '
    b'"id": "11111111-2222-3333-4444-555555555555", "shadow": null, '
    b'"eta": "2026-11-20T13:02:03.477079+00:00", "expires": "2026-11-20T13:02:31.977079+00:00", '
    b'"group": null, "group_index": null, "retries": 0, "timelimit": [null, null], '
    b'"root_id": "11111111-2222-3333-4444-555555555555", "parent_id": null, '
    b'"argsrepr": "(\'pad\',)", "kwargsrepr": "{\'n\': 2}", "origin": "gen10179@vm", '
    b'"ignore_result": null, "replaced_task_nesting": 0, "stamped_headers": null, "stamps": {}}, '
    b'"properties": {"correlation_id": "11111111-2222-3333-4444-555555555555", '
    b'"reply_to": "fb8dd6f3-bcd7-369f-bba5-a9e86a4b9523", "delivery_mode": 2, '
    b'"expiration": "30000", "delivery_info": {"exchange": "", "routing_key": "q"}, '
    b'"priority": 0, "body_encoding": "base64", '
    b'"delivery_tag": "76c59bd9-b5ef-4d06-9d48-2fbf33b857b5"}}'
)
CELERY_BODY = (
    b'[["pad"], {"n": 2}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
)
CELERY_HEADERS: dict[str, Any] = json.loads(CELERY_MESSAGE)["headers"]


def envelope(
    *,
    task: str,
    id: str,
    args: object = (),
    kwargs: object = None,
    body: bytes | None = None,
    content_type: str = "application/json",
    without: tuple[str, ...] = (),
    **headers: Any,
) -> bytes:
    """Return a message as Celery would queue it, with what the test changes."""
    message = json.loads(CELERY_MESSAGE)
    if body is None:
        body = json.dumps([args, kwargs or {}, {}]).encode()
    message["body"] = base64.b64encode(body).decode()
    message["content-type"] = content_type
    message["headers"] |= {"task": task, "id": id, "eta": None, "expires": None} | headers
    for name in without:
        del message["headers"][name]
    return json.dumps(message).encode()
