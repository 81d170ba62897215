"""The tasks of the canvases, for a Celery worker: `celery -A sums worker`."""

from typing import Any

from celery import signature
from ground import app


@app.task(name="add")
def add(a: int, b: int) -> int:
    return a + b


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="same")
def same(value: Any) -> Any:
    return value


@app.task(name="become", bind=True)
def become(self: Any, plain: Any) -> None:
    raise self.replace(signature(plain, app=app))


@app.task(name="fail")
def fail(*args: Any) -> None:
    raise ValueError("no")


@app.task(name="bad")
def bad(id: str, name: str) -> None:
    app.backend.client.rpush("heard", f"{name} {id}")
