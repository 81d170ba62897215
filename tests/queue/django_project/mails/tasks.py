import os
import threading
from typing import Any

from asgiref.sync import sync_to_async
from django.tasks import TaskContext, task

from tests.queue.django_project.orders import tasks as orders_tasks
from tests.queue.django_project.orders.models import Order


@task
def send(order_id: int) -> str:
    """Note who sends it. Raises DoesNotExist for an order that is not committed."""
    order = Order.objects.get(pk=order_id)
    order.confirmed_by = os.getpid()
    order.save()
    return str(order.item)


@task
async def send_in_loop(order_id: int) -> str:
    return str(await sync_to_async(send.call)(order_id))


@task(takes_context=True)
def look(context: TaskContext, *args: Any, **kwargs: Any) -> list[Any]:
    """Return what Django's context says."""
    result = context.task_result
    return [context.attempt, result.id, result.status, result.worker_ids, result.args, kwargs]


@task
def fail(words: str) -> None:
    raise ValueError(words)


@task
def leave() -> None:
    raise SystemExit("left")


@task(takes_context=True)
def hang_once(context: TaskContext) -> int:
    """Hang in the first attempt, until its worker is killed; return the number of the next."""
    if context.attempt == 1:
        threading.Event().wait()
    return int(context.attempt)


@task
def count(order_id: int) -> None:
    orders_tasks.count.run(order_id)
