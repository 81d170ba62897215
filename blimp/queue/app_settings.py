"""The settings of a TaskApp, read once when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from blimp.queue.extensions import Middleware
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES
from blimp.queue.protocol.signing import Key
from blimp.queue.redis.urls import Strategy
from blimp.queue.results.backend import ResultKeywords, ResultOptions, result_options
from blimp.queue.retry import OnConnectionError, RetryPolicy


class AppKeywords(ResultKeywords, total=False):
    """The keywords of `TaskApp`; see AppSettings, and ResultOptions."""

    queue: str | None
    middleware: Iterable[Middleware] | None
    limit_bytes: int
    max_dead_letters: int
    max_dead_letter_bytes: int
    timeout_s: float
    transport: str | None
    failover_strategy: str | Strategy
    retry: bool
    retry_policy: RetryPolicy | dict[str, Any] | None
    connection_retry_policy: RetryPolicy | dict[str, Any] | None
    on_connection_error: OnConnectionError | None
    signing_key: Key | Sequence[Key] | None
    events: bool
    send_sent_event: bool
    remote_control: str | None


class AppSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an app sends, and what its workers do.

    queue: the default queue of its tasks; the app's name if it is not given.
    middleware: of its workers, instead of the default.
    limit_bytes: larger messages and results are refused.
    transport: the name of a broker (brokers/__init__.py) if the URL does not say it. A worker
        logs at its start which guarantees are missing.
    retry, retry_policy: whether and how a message is published again after a connection error.
    connection_retry_policy: how a worker reconnects to its broker; `max_retries` ends it.
    on_connection_error: called with each error, and the seconds until the next attempt.
    signing_key: messages are signed with it, and others refused; of several, the first signs.
    events: its workers send task events, as Celery's do; see docs/events.md.
    send_sent_event: the sender of a task sends an event, too, at a round trip each.
    remote_control: what callers who reach the broker may do with a worker: "all" that Celery
        offers; "inspect": ask questions, and change it only if the command is signed; "off":
        nothing. By default "inspect" with a signing key, and "all" without.
    """

    queue: str | None = None
    middleware: Iterable[Middleware] | None = None
    limit_bytes: int = MAX_MESSAGE_BYTES
    max_dead_letters: int = 10_000
    max_dead_letter_bytes: int = 64_000_000
    timeout_s: float = 2.0
    transport: str | None = None
    failover_strategy: str | Strategy = "round-robin"
    retry: bool = True
    retry_policy: RetryPolicy | dict[str, Any] | None = None
    connection_retry_policy: RetryPolicy | dict[str, Any] | None = None
    on_connection_error: OnConnectionError | None = None
    signing_key: Key | Sequence[Key] | None = None
    events: bool = False
    send_sent_event: bool = False
    remote_control: str | None = None
    results: ResultOptions

    def __repr__(self) -> str:
        """Return no value of it: one is a key."""
        return "AppSettings(…)"


def app_settings(keywords: AppKeywords) -> AppSettings:
    """Return `keywords` as settings. Raises ConfigError naming a wrong one."""
    names = {*AppSettings.__struct_fields__} - {"results"}
    own: dict[str, Any] = {name: one for name, one in keywords.items() if name in names}
    results: Any = {name: one for name, one in keywords.items() if name not in names}
    return AppSettings(**own, results=result_options(results))
