"""Ask and change workers by Celery's own `inspect` and `control`, one after another.

Arguments: the name of the worker, then commands in JSON, each `[kind, name, args, kwargs]`
with kind "inspect" or "control". Prints a JSON list of the answers.
"""

import json
import sys

from ground import app

worker, *commands = sys.argv[1:]
found = []
for command in commands:
    kind, name, args, kwargs = json.loads(command)
    if kind == "inspect":
        asked = app.control.inspect(destination=[worker], timeout=30.0)
        answer = getattr(asked, name)(*args, **kwargs)
    else:
        replies = getattr(app.control, name)(
            *args, **kwargs, destination=[worker], reply=True, timeout=30.0
        )
        answer = replies[0] if replies else None
    found.append((answer or {}).get(worker))
print(json.dumps(found))
