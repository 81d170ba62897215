from asgiref.sync import sync_to_async
from django.db import connections, transaction

from tests.queue.django_project.queue import app


def backend() -> int:
    """Return the process of PostgreSQL that serves this thread's connection."""
    with connections["server"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    return int(pid)


app.task(name="probes.thread")(backend)
app.task(name="probes.process", cpu_bound=True)(backend)


@app.task(name="probes.loop")
async def in_loop() -> int:
    return await sync_to_async(backend)()


@app.task(name="probes.left_open")
def leave_open() -> int:
    """Leave a transaction as an interruption in `__enter__` does."""
    transaction.atomic(using="server").__enter__()
    return backend()
