"""What Celery's words are called here, for the errors of who comes from there: a table.

Loaded by an error. docs/coming-from-celery.md has the whole of it. Tested by test_words.py.
"""

from __future__ import annotations

_OF_TASK = "an option of @app.task: {}="
_TESTS = 'blimp.queue.testing runs tasks in this process: docs/queue.md, "Tests without a server"'
_QUEUE = "queue= names where a task goes; there are no exchanges and routing keys to choose"
_JSON = "messages and results are JSON, always"
_SETTINGS = "settings are keywords of TaskApp(…), and stand in app.settings"
_CONTEXT = (
    "with @app.task(bind=True) the first argument is the context: context.id, context.retries"
)

# Of Celery(…), app.conf, and their old names.
SETTINGS = {
    "backend": "result_backend=",
    "broker_url": "broker=",
    "main": "the first argument, the name of the app",
    "include": "the app's module imports the modules that register tasks",
    "task_always_eager": _TESTS,
    "task_serializer": _JSON,
    "result_serializer": _JSON,
    "accept_content": _JSON,
    "timezone": "times have a zone of their own; cron(…, tz=…) for schedules",
    "beat_schedule": "schedule=every(…) or cron(…) of @app.task",
    "task_default_queue": "queue=",
    "task_routes": "queue= of @app.task, or of apply_async",
    "task_acks_late": f"{_OF_TASK.format('acks_late')} True by default",
    "task_reject_on_worker_lost": _OF_TASK.format("reject_on_worker_lost"),
    "task_track_started": _OF_TASK.format("track_started"),
    "task_ignore_result": _OF_TASK.format("ignore_result"),
    "task_time_limit": "time_limit=",
    "task_soft_time_limit": "soft_time_limit=",
    "task_annotations": "options of @app.task",
    "task_send_sent_event": "send_sent_event=",
    "task_publish_retry": "retry=",
    "result_expires": "result_expires_s=",
    "broker_transport_options": "keywords of TaskApp; there is no visibility_timeout",
    "visibility_timeout": "none: a killed worker's tasks run again after about 2 s",
    "broker_connection_retry": "connection_retry_policy=",
    "broker_connection_timeout": "timeout_s=",
    "broker_failover_strategy": "failover_strategy=",
    "broker_pool_limit": "max_connections=",
    "worker_concurrency": "--sync-workers and --loop-concurrency of the worker",
    "worker_prefetch_multiplier": "--prefetch of the worker",
    "worker_max_tasks_per_child": "--max-tasks of the worker",
    "worker_max_memory_per_child": "--max-memory-mb of the worker",
    "worker_hijack_root_logger": "a worker leaves the program's logging as it is: docs/observe.md",
}
APP = {
    "conf": _SETTINGS,
    "config_from_object": _SETTINGS,
    "autodiscover_tasks": "the app's module imports the modules that register tasks; in Django "
    "tasks are found: docs/queue.md",
    "shared_task": "@app.task of an app that the module imports",
    "AsyncResult": "app.result(id)",
    "signature": "blimp.queue.signature(…, app=app), or task.s(…)",
    "control": "python -m blimp.queue control …, and app.revoke(id)",
    "add_periodic_task": "schedule=every(…) or cron(…) of @app.task",
    "on_after_configure": "schedule= of @app.task; app.boot_step(…) for what starts with a worker",
    "steps": "app.boot_step(…), app.extend(…)",
    "start": "python -m blimp.queue worker -A module:app",
    "worker_main": "python -m blimp.queue worker -A module:app, or Worker(app=app).run()",
    "Worker": "blimp.queue.Worker(app=app)",
    "Task": "blimp.queue.Task; a task has functions and no base class",
    "current_task": _CONTEXT,
    "backend": "app.results",
    "main": "app.name",
    "register_task": "@app.task",
}
TASK = {
    "request": _CONTEXT,
    "retry": "context.retry(…), with @app.task(bind=True)",
    "update_state": "context.progress(0.4, …), with @app.task(bind=True)",
    "apply": "task.call(…) runs it here; blimp.queue.testing runs what it sends, too",
    "AsyncResult": "app.result(id)",
    "backend": "task.app.results",
    "on_failure": "link_error=, or a middleware: CONTRIBUTING.md",
}
CONTEXT = {
    "request": "the context itself: context.id, context.retries, context.message.args",
    "args": "context.message.args",
    "kwargs": "context.message.kwargs",
    "name": "context.task.name",
    "app": "context.task.app",
    "hostname": "context.worker",
    "delivery_info": "context.message.queue, context.message.priority",
    "eta": "context.message.eta_s",
    "expires": "context.message.expires_s",
    "task_id": "context.id",
    "max_retries": "context.task.options.max_retries",
    "update_state": "context.progress(0.4, …)",
    "delay": "context.task.delay(…)",
    "apply_async": "context.task.apply_async(…)",
    "s": "context.task.s(…)",
}
OPTIONS = {  # of @app.task
    "base": "a task is a function and has no base class: a middleware, or Depends(…)",
    "serializer": _JSON,
    "default_retry_delay": "retry_backoff=, or retry_kwargs={'countdown': …}",
    "routing_key": _QUEUE,
    "exchange": _QUEUE,
    "expires": "ttl_s=, or expires= of apply_async",
    "throws": "raise Refused(reason): it ends as REFUSED, without a traceback",
    "acks_on_failure_or_timeout": "acks_on_failure= and acks_on_timeout=",
    "dont_autoretry_for": "autoretry_for= names what is tried again",
}
SENDING = {  # options of apply_async
    "serializer": _JSON,
    "routing_key": _QUEUE,
    "exchange": _QUEUE,
    "shadow": "a name of its own, name= of @app.task",
    "producer": "none: the app sends over connections of its own",
    "chord": "chord(…) of blimp.queue",
    "max_retries": _OF_TASK.format("max_retries"),
}
MODULE = {
    "Celery": "TaskApp",
    "shared_task": APP["shared_task"],
    "current_app": "there is no current app: pass it, or import it",
    "current_task": _CONTEXT,
    "crontab": "cron",
    "subtask": "signature",
    "get_task_logger": "logging.getLogger(…): its lines name the task",
    "Ignore": "blimp.errors.Ignore",
    "Retry": "blimp.errors.Retry",
    "SoftTimeLimitExceeded": "blimp.errors.SoftTimeLimitExceeded",
    "states": "State",
    "signals": "app.boot_step(…), app.extend(…), a middleware: CONTRIBUTING.md",
}


def here(table: dict[str, str], *names: str) -> str:
    """Return "; Celery's `backend`: result_backend=" for each of `names` in `table`, or ""."""
    found = [f"; Celery's `{name}` is here: {table[name]}" for name in names if name in table]
    return "".join(found)


def missing(owner: object, table: dict[str, str], name: str) -> AttributeError:
    """Return the error of an attribute that `owner` has not."""
    words = f"{type(owner).__name__!r} object has no attribute {name!r}{here(table, name)}"
    return AttributeError(words, name=name, obj=owner)
