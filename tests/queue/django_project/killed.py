"""Takes orders in processes that are killed at each boundary of the outbox; see test_outbox.py.

    python -m tests.queue.django_project.killed prepare
    python -m tests.queue.django_project.killed ROUNDS

The second prints, as JSON, how many orders were committed, and what became of their tasks.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.db import connections, transaction

from blimp.queue.extras.django import outbox
from tests.queue.django_project.queue import app

BOUNDARIES = ("in the transaction", "committed", "sent", "deleted", "nowhere")
DEADLINE_S = 60.0


def killed(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def then(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is killed right after `function`."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        killed()

    return run


def take(at: str) -> None:
    """Take an order, and be killed there. Its item says where."""
    from tests.queue.django_project.orders.models import Order
    from tests.queue.django_project.orders.tasks import count

    if at == "committed":
        outbox.send_now = killed
    elif at == "sent":
        outbox.send_now = then(outbox.send_now)
    elif at == "deleted":
        vars(app.broker_link)["ask"] = killed
    with transaction.atomic():
        order = Order.objects.create(item=at)
        if "mails" in sys.argv:
            from tests.queue.django_project.mails.tasks import count as count_mail

            count_mail.enqueue(order.pk)
        else:
            count.delay_on_commit(order.pk)
        if at == "in the transaction":
            killed()


def main() -> None:
    app.import_tasks()
    if "prepare" in sys.argv:
        call_command("migrate", run_syncdb=True, verbosity=0)
        return
    from blimp.queue.extras.django.models import Unsent
    from tests.queue.django_project.orders.models import Order

    app.publisher.connect()  # so that no child has to import what that needs
    app.close()
    for _ in range(int(sys.argv[1])):
        for at in BOUNDARIES:
            child = os.fork()
            if child == 0:
                take(at)
                os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]) == (at != "nowhere"), at
    end_s = time.monotonic() + DEADLINE_S
    while Order.objects.filter(counted=0).exists() or Unsent.objects.exists():
        if time.monotonic() > end_s:
            break
        time.sleep(0.1)
    lost, doubled = Order.objects.filter(counted=0), Order.objects.filter(counted__gt=1)
    found = {
        "committed": Order.objects.count(),
        "lost": sorted(lost.values_list("item", flat=True)),
        "doubled": sorted(doubled.values_list("item", flat=True)),
        "left": Unsent.objects.count(),
    }
    connections.close_all()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
