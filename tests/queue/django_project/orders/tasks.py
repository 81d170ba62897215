import os

from django.db.models import F

from tests.queue.django_project.orders.models import Order
from tests.queue.django_project.queue import app


@app.task(name="orders.confirm")
def confirm(order_id: int) -> str:
    """Confirm an order. Raises DoesNotExist for one that is not committed."""
    order = Order.objects.get(pk=order_id)
    order.confirmed_by = os.getpid()
    order.save()
    return str(order.item)


app.task(name="orders.confirm_in_process", cpu_bound=True)(confirm)


@app.task(name="orders.confirm_in_loop")
async def confirm_in_loop(order_id: int) -> str:
    order = await Order.objects.aget(pk=order_id)
    order.confirmed_by = os.getpid()
    await order.asave()
    return str(order.item)


@app.task(name="orders.count")
def count(order_id: int) -> None:
    """Count how often it runs for an order."""
    if not Order.objects.filter(pk=order_id).update(counted=F("counted") + 1):
        raise LookupError(f"order {order_id} is not committed")
