"""An app whose task notes each tick at which it was sent: tests kill its workers."""

import os

from blimp.queue import TaskApp, TaskContext, every
from blimp.queue.redis.client import open_redis

BROKER = os.environ.get("KILLED_BROKER", "redis+socket:///nowhere?virtual_host=0")
app = TaskApp("scheduled", broker=BROKER)


# A tick expires at the next one: apart enough for a machine that does much else.
@app.task(name="note", bind=True, schedule=every(3.0))
def note(context: TaskContext) -> None:
    """Note the message and when the next tick is due, which is when it expires."""
    with open_redis(BROKER, timeout_s=5.0) as redis:
        redis.rpush("noted", f"{context.id} {context.message.expires_s:.0f}")
