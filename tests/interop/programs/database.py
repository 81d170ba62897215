"""Celery on results in a database: `read URL TASKS GROUPS ID…` prints what it finds under each id.

`write URL TASKS GROUPS` stores one success and one failure itself. All results are JSON.
"""

import json
import sys

from celery import Celery

verb, url, tasks, groups, *ids = sys.argv[1:]
app = Celery("ground", broker="memory://", backend=url)
app.conf.update(
    result_serializer="json",
    accept_content=["json"],
    result_extended=True,
    database_table_names={"task": tasks, "group": groups},
)
if verb == "write":
    app.backend.store_result("theirs", [1, "ä"], "SUCCESS")
    app.backend.store_result("broken", ValueError("the valve is shut"), "FAILURE")
for id in ids:
    result = app.AsyncResult(id)
    answers = {
        "state": result.state,
        "value": repr(value) if isinstance(value := result.result, Exception) else value,
        "date": result.date_done.isoformat() if result.date_done else None,
        "name": result.name,
        "args": result.args,
        "queue": result.queue,
        "retries": result.retries,
    }
    print(json.dumps(answers))
