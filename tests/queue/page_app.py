"""An app for the queue's page: a failure with markup in it, a task that is let end, a schedule."""

from pathlib import Path

from blimp.queue import TaskApp, every
from tests.queue.killed_app import BROKER, DIRECTORY, RESULTS, run

app = TaskApp("shop", broker=BROKER, result_backend=RESULTS)

MARKUP = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"


@app.task(name="shop.pay")
def pay(order: str, *, by: str = "card") -> str:
    """Fail until the file of the order is there."""
    if not Path(DIRECTORY, order).exists():
        raise ValueError(f"no money {MARKUP}")
    return f"paid by {by}"


@app.task(name="shop.report", schedule=every("24h", args=("noon",)))
def report(kind: str) -> str:
    return f"report of {kind}"


app.task(name="shop.pack", bind=True)(run)
