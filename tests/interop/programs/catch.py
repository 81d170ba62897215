"""Send tasks, and print what a Celery program catches: `catch.py CALL…`, each in JSON.

A call is `[task, args, options]`. Its option `revoke` has it revoked after it was sent. For each
call prints the state, and either the value or the exception: its class, its bases and its
arguments. Values are written as kombu's JSON writes them, in and out.
"""

import sys
from typing import Any

import celery.exceptions
from celery import chord
from ground import app
from kombu.utils.json import dumps, loads

DEADLINE_S = 60.0
BOMB = 50_000_000


def send(name: str, args: Any, options: dict[str, Any]) -> Any:
    if name == "chord":  # args: two parts, the second with these options
        first, second, body = (app.signature(one) for one in args)
        return chord([first, second.set(**options)], body, app=app).apply_async()
    if name == "bomb":  # too long for a command line
        name, args = "same", ["x" * BOMB]
    return app.send_task(name, args, **options)


def caught(error: Exception) -> dict[str, Any]:
    names = [base.__name__ for base in type(error).__mro__]
    known = [name for name in names if hasattr(celery.exceptions, name)]
    return {"class": names[0], "is": known, "args": list(error.args), "text": str(error)}


found = []
for call in sys.argv[1:]:
    task, given, options = loads(call)
    called_back = options.pop("revoke", False)
    sent = send(task, given, options)
    if called_back:
        app.control.revoke(sent.id)
    try:
        value = sent.get(timeout=DEADLINE_S)
        found.append({"state": sent.state, "value": value, "type": type(value).__name__})
    except Exception as error:
        found.append({"state": sent.state, **caught(error)})
print(dumps(found))
