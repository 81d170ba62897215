"""Send a task by its name and print what came of it: NAME ARGS-AS-JSON [KWARGS-AS-JSON]."""

import json
import sys

from ground import app

name, args, *kwargs = sys.argv[1:]
result = app.send_task(name, json.loads(args), json.loads(kwargs[0]) if kwargs else {})
try:
    value: object = result.get(timeout=60.0)
except Exception as error:
    value = f"{type(error).__name__}: {error}"
print(json.dumps({"id": result.id, "state": result.state, "value": value}))
