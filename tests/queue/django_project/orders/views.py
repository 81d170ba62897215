from django.db import transaction
from django.http import HttpRequest, JsonResponse

from tests.queue.django_project.orders.models import Order
from tests.queue.django_project.orders.tasks import confirm

STOCK = {"lamp", "rope"}


class SoldOut(Exception):
    """There is none: the order is rolled back."""


def order(request: HttpRequest) -> JsonResponse:
    """Take an order; its task is sent with the commit."""
    item = request.POST["item"]
    try:
        with transaction.atomic():
            one = Order.objects.create(item=item)
            confirm.delay_on_commit(one.pk)
            if item not in STOCK:
                raise SoldOut
    except SoldOut:
        return JsonResponse({"error": f"no {item}"}, status=409)
    return JsonResponse({"id": one.pk}, status=202)
