"""A Celery program as people write it; its environment names the broker of a test."""

import os

from celery import Celery

URL = os.environ["GROUND_BROKER"]
IS_REDIS = URL.startswith(("redis", "unix"))

app = Celery("ground", broker=URL, backend=URL if IS_REDIS else "rpc://")
app.conf.update(
    broker_transport=os.environ.get("GROUND_TRANSPORT") or None,
    task_default_queue="tests",
    task_ignore_result=False,
    broker_connection_retry_on_startup=True,
)
