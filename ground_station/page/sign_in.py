"""Signing in a browser that is opened on this machine, without a token in any program's arguments.

Everybody on a machine can read the arguments of every program, so the address that a browser is
started with holds a code instead. It is good for one exchange, within a minute, by a program of the
same user: the kernel says whose a connection of this machine is.
"""

import hmac
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.clock import Clock
from blimp.system import user_id
from blimp.web.answers import arguments_of, failed_answer, json_answer

WITHIN_S = 60.0  # a browser starts in seconds, on a slow disk in some ten
TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}  # proc(5)


class SignIn:
    """Codes for one token."""

    def __init__(self, *, token: str, clock: Clock) -> None:
        self._token, self._clock = token, clock
        self._codes: dict[str, float] = {}

    def new_code(self) -> str:
        code = secrets.token_urlsafe(16)
        self._codes[code] = self._clock.now_s() + WITHIN_S
        return code

    def routes(self) -> Sequence[Route]:
        return (Route("/api/sign-in", self._exchange, methods=["POST"]),)

    async def _exchange(self, request: Request) -> Response:
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        code = self.known(arguments.get("code"))
        client, server = request.scope["client"], request.scope["server"]
        if (
            code is not None
            and await run_in_threadpool(user_of, client, server) == user_id()
            and self._codes.pop(code, None) is not None
        ):
            return json_answer({"token": self._token})
        return failed_answer("sign-in", "this address was good once, for a minute", 403)

    def known(self, given: object) -> str | None:
        """Return the code that was given if it is good; no longer once it was exchanged."""
        now_s = self._clock.now_s()
        self._codes = {code: until_s for code, until_s in self._codes.items() if now_s < until_s}
        if not isinstance(given, str):
            return None
        found = [one for one in self._codes if hmac.compare_digest(one.encode(), given.encode())]
        return found[0] if found else None


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user whose program holds a connection of this machine; None if unknown.

    client, server: address and port of its two ends.
    """
    ends = [_hexadecimal(*end) for end in (client, server)]
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        with TABLES[family].open(encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1:3] == ends:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _hexadecimal(address: str, port: int) -> str:
    """Return an end of a connection as the kernel writes it: words in the machine's byte order."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
