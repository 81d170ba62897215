"""Tasks behind a FastAPI program: `uvicorn ground_station.examples.api:api`.

First, in another terminal: `python -m blimp.queue worker -A ground_station.examples.api:queue`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from blimp.queue import TaskApp

URL = os.environ.get("BROKER_URL", "redis://localhost/0")

queue = TaskApp("weather", broker=URL, result_backend=URL)


@queue.task(name="weather.read", idempotent=True)
def read(station: str) -> float:
    return {"EDDB": 12.5}[station]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    with queue:
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/stations/{station}")
async def begin(station: str) -> str:
    return (await read.adelay(station)).id


@api.get("/results/{id}")
async def result(id: str) -> float:
    return await queue.result(id).aget(timeout=10.0)  # type: ignore[no-any-return]
