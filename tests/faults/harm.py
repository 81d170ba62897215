"""What a hostile or broken program can do to a stream in Redis, or a server that restarts."""

import contextlib
import time
from typing import Any

import redis

LAST_ID = "18446744073709551615-18446744073709551615"
HOUR_S = 3600.0
HARMS = (
    "nothing", "emptied", "an entry ahead", "ahead and deleted", "ahead and emptied",
    "gone back", "filled", "of another type",
)  # fmt: skip
REFUSING = ("filled", "of another type")  # such a stream takes no entry


def harm(client: Any, what: str, stream: str, *, ahead_s: float = HOUR_S) -> None:
    """Do `what`, one of HARMS. ahead_s: of the server, of an entry of the future."""
    entry = {"h": "x", "b": "y"}
    ahead = f"{int((time.time() + ahead_s) * 1000)}-0"
    with contextlib.suppress(redis.ResponseError):  # another harm was done already
        if what in ("an entry ahead", "ahead and deleted", "ahead and emptied"):
            client.xadd(stream, entry, id=ahead)
        if what == "ahead and deleted":
            client.xdel(stream, ahead)
        if what in ("emptied", "ahead and emptied", "gone back", "of another type"):
            client.delete(stream)
        if what == "gone back":
            client.xadd(stream, entry, id="1-1")
        if what == "filled":
            client.xadd(stream, entry, id=LAST_ID)
        if what == "of another type":
            client.set(stream, "x")
