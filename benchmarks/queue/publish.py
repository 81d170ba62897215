"""One publisher, run in a peer's environment: `python -m benchmarks.queue.publish MODULE …`.

Prints how many seconds its messages took as the last line of its standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import time
from collections.abc import Callable
from typing import Any


def publish(send: Callable[[int], Any], *, count: int, rate_hz: float) -> float:
    """Send `count` messages, one after the other or `rate_hz` of them a second and timed."""
    began_s = time.monotonic()
    for number in range(count):
        if rate_hz:
            time.sleep(max(0.0, began_s + number / rate_hz - time.monotonic()))
        send(time.monotonic_ns() if rate_hz else 0)
    return time.monotonic() - began_s


async def publish_async(opening: Any, *, count: int, rate_hz: float) -> float:
    send = await opening
    await send(0)  # connects
    began_s = time.monotonic()
    for number in range(count):
        if rate_hz:
            await asyncio.sleep(max(0.0, began_s + number / rate_hz - time.monotonic()))
        await send(time.monotonic_ns() if rate_hz else 0)
    return time.monotonic() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("--count", type=int, required=True, help="one more is sent first")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: no wait")
    options = parser.parse_args()
    sender = importlib.import_module(options.module).open_sender()
    if inspect.isawaitable(sender):
        took_s = asyncio.run(publish_async(sender, count=options.count, rate_hz=options.rate))
    else:
        sender(0)  # connects
        took_s = publish(sender, count=options.count, rate_hz=options.rate)
    print(took_s)


if __name__ == "__main__":
    main()
