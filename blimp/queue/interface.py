"""The one interface of a TaskApp and of a Task, for the parts below them. Of types alone.

A part that stands above the one that asks is Any here: no room knows what is above it.
Tested by test_task_types.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random

    from blimp.clock import Clock
    from blimp.queue.options import TaskOptions
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.redis.clock import BrokerClock
    from blimp.queue.retry import RetryPolicy


class KnownTask(Protocol):
    name: str
    options: TaskOptions

    def named_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]: ...
    def key_of(self, option: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str: ...


class App(Protocol):
    name: str
    queue: str
    clock: Clock
    chance: random.Random
    broker_clock: BrokerClock
    retry_policy: RetryPolicy
    limit_bytes: int
    signer: Signer | None
    tracer: Any
    on_sent: Callable[..., None] | None
    results: Any  # ResultBackend | None
    child_extension: Any

    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def broker_link(self) -> RedisServer: ...
    @property
    def publisher(self) -> Any: ...
    @property
    def awaiting(self) -> Any: ...
    @property
    def kept(self) -> Any: ...
    @property
    def chords(self) -> Any: ...
    @property
    def completes_at_once(self) -> bool: ...
    @property
    def chords_end_at_once(self) -> bool: ...
    @property
    def send_task(self) -> Callable[..., Any]: ...
    @property
    def send_canvas(self) -> Callable[..., Any]: ...
    @property
    def direct_context(self) -> Callable[..., Any]: ...
    @property
    def get_task(self) -> Callable[[str], Any]: ...
    @property
    def task_for(self) -> Callable[[Any], Any]: ...
    @property
    def revoke(self) -> Callable[..., Any]: ...
    @property
    def close_kept(self) -> Callable[[], None]: ...
