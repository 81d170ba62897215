"""The connections to one server: as many as are allowed, for whom waits longest.

redis-py's own pools raise at once when all are in use, or are as slow as a command.
Tested by test_connections.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import redis
from redis.sentinel import SentinelConnectionPool

from blimp.errors import LinkError
from blimp.queue.redis.forks import reset_after_fork

REFUSAL_S = 0.2  # it is sent as soon as the server has accepted the connection

if TYPE_CHECKING:
    _Pool = redis.ConnectionPool
else:
    _Pool = object


class Waits(_Pool):
    """Has a caller wait for a connection that another one uses. Thread-safe; a mixin of pools.

    shown: the server, as an error names it. wait_s: how long a caller waits at most.
    Raises LinkError if no connection is given back within `wait_s`.
    """

    def __init__(self, *args: Any, shown: str, wait_s: float, **given: Any) -> None:
        self._shown, self._wait_s = shown, wait_s
        super().__init__(*args, **given)
        reset_after_fork(self)

    def reset(self) -> None:
        super().reset()
        # Reentrant: a signal handler may ask as well.
        self._serving = threading.RLock()
        self._waiting: deque[SimpleQueue[Any]] = deque()
        self._idle: deque[Any] = deque()  # an interrupted command's answer may still come
        self._whole: deque[Any] = deque()  # each command has had its answer
        # One whose user lost it, as by an exception at any place, counts no more.
        self._made: WeakSet[Any] = WeakSet()

    after_fork = reset  # the parent's connections stay the parent's

    @property
    def is_half_used(self) -> bool:
        """Whether half of the connections that may be are in use now."""
        used = len(self._made) - len(self._idle) - len(self._whole)
        return 2 * used >= self.max_connections

    def take(self) -> Any:
        """Return a connection for one command. It may have died since its last use."""
        try:
            return self._whole.pop()
        except IndexError:
            return self.get_connection()

    def put(self, connection: Any) -> None:
        """Give back a connection whose commands have all been answered."""
        self._whole.append(connection)
        if self._waiting:
            self._serve()

    def get_connection(self, *_: Any, **__: Any) -> Any:
        """Return a connection that is connected, and has nothing to read."""
        connection = self._obtain()
        try:
            _connect(connection)
            try:
                is_clean = not connection.can_read()
            except (redis.ConnectionError, redis.TimeoutError, OSError):
                is_clean = False
            if not is_clean:
                connection.disconnect()
                _connect(connection)
        except BaseException:
            self.release(connection)
            raise
        return connection

    def release(self, connection: Any) -> None:
        if connection not in self._made:
            return  # the parent's
        if not self.owns_connection(connection):
            connection.disconnect()  # of a master that is none any more
        self._idle.append(connection)
        if self._waiting:
            self._serve()

    def disconnect(self, inuse_connections: bool = True) -> None:
        while self._whole:  # they need to connect again before a command
            self._idle.append(self._whole.pop())
        with self._serving:  # none is made meanwhile
            found = list(self._made if inuse_connections else self._idle)
        for one in found:
            one.disconnect()

    def _obtain(self) -> Any:
        waiter: SimpleQueue[Any] = SimpleQueue()
        self._waiting.append(waiter)
        try:
            self._serve()
            return waiter.get(timeout=self._wait_s)
        except BaseException as error:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            with contextlib.suppress(Empty):  # it came at the last moment
                self._idle.append(waiter.get_nowait())
                self._serve()
            if isinstance(error, Empty):
                raise LinkError(
                    f"broker at {self._shown}: all {self.max_connections} connections of this app "
                    f"are in use, for {self._wait_s:g} s: give it more max_connections"
                ) from None
            raise

    def _serve(self) -> None:
        """Give connections to those that wait, the first first."""
        with self._serving:
            while self._waiting:
                connection = self._spare()
                if connection is None:
                    return
                try:
                    self._waiting.popleft().put(connection)
                except IndexError:
                    self._idle.append(connection)

    def _spare(self) -> Any:
        for stack in (self._whole, self._idle):
            with contextlib.suppress(IndexError):
                return stack.pop()
        if len(self._made) >= self.max_connections:
            return None
        made = self.connection_class(**self.connection_kwargs)
        self._made.add(made)
        return made


def _connect(connection: Any) -> None:
    try:
        connection.connect()
    except redis.ConnectionError as error:
        # It was closed before the greeting was written: redis-py does not read what was said.
        if isinstance(error.__context__, BrokenPipeError | ConnectionResetError):
            raise redis.ConnectionError(_refusal(connection) or str(error)) from None
        raise


def _refusal(connection: Any) -> str:
    """Return what a server says before it is asked anything, as one with too many clients does."""
    try:
        with contextlib.closing(connection._connect()) as channel:
            channel.settimeout(REFUSAL_S)
            said: bytes = channel.recv(200)
    except (OSError, redis.RedisError):
        return ""
    return said.strip().decode(errors="replace") if said.startswith(b"-") else ""


class Pool(Waits, redis.ConnectionPool): ...


class SentinelPool(Waits, SentinelConnectionPool): ...
