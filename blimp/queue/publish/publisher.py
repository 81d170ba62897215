"""Sending a task: what a caller may say of it, its message, and the way into a queue."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from blimp.clock import Clock, SystemClock
from blimp.errors import ConfigError, LinkError, MessageError
from blimp.queue.brokers import broker_for
from blimp.queue.brokers.base import Written
from blimp.queue.options import TaskOptions
from blimp.queue.protocol.embed import check_signature, listed
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import (
    AGAIN,
    FAIR,
    MAX_MESSAGE_BYTES,
    MAX_NUMBER,
    NORMAL,
    TaskMessage,
    check_limits,
    check_name,
    check_priority,
    current_trace,
    epoch_s,
    new_id,
    to_json,
    write_message,
    zoned,
)
from blimp.queue.protocol.signing import sealed
from blimp.queue.protocol.unique import HEADER as UNIQUE
from blimp.queue.protocol.unique import UniqueClaim, claim_of
from blimp.queue.publish.coalescing import Coalescing, coalescing_key
from blimp.queue.redis.keys import digest_of
from blimp.queue.redis.urls import Brokers
from blimp.queue.retry import ONCE, PUBLISHING, RetryPolicy, policy_of
from blimp.reading import ready

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Broker, Exchange, Found, Sender
    from blimp.queue.interface import App, KnownTask
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer

T = TypeVar("T")
# Put in one step: a Redis server serves nobody else meanwhile, some 2 ms.
AT_ONCE, BYTES_AT_ONCE = 200, 1_000_000
MOST_QUEUES = 100  # whose names are kept
LATEST_S = 253_370_764_800.0  # 9999-01-01: a message has its times in ISO 8601, of four digits


class Publisher:
    """Connects on first use. Close is idempotent.

    url: of the broker, or the brokers: one that does not answer is left for the next.
    policy: how often a message is sent again if its broker did not answer. Streams recognise
        the repetition and put nothing more; elsewhere, and at another broker, a header makes
        the worker look whether the task is done already.
    now_s: the broker's time, for signed broadcasts; by default this machine's.
    broker: instead of the one that takes the URL. server: see `Broker.open_sender`.
    """

    def __init__(
        self,
        *,
        url: str | Brokers,
        timeout_s: float = 2.0,
        transport: str | None = None,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        signer: Signer | None = None,
        policy: RetryPolicy = PUBLISHING,
        clock: Clock | None = None,
        now_s: Callable[[], float] | None = None,
        broker: Broker | None = None,
        server: RedisServer | None = None,
    ) -> None:
        self.brokers = url if isinstance(url, Brokers) else Brokers(url)
        self._broker = broker or broker_for(self.brokers.urls, name=transport)
        self._server = server
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self.signer = signer
        self._policy = policy
        self._clock = clock or SystemClock()
        self._now_s = now_s or self._clock.wall_s
        self._chance = random.Random()
        self._lock = threading.Lock()
        self._senders: dict[str, Sender] = {}
        self.queues: set[str] = set()  # the first to which it has sent

    def connect(self) -> None:
        """Have a connection ready, so that the first message need not wait for one."""
        self._retry(lambda: self._sender().connect())

    def publish(
        self, message: TaskMessage, *, policy: RetryPolicy | None = None, stamp: Any = None
    ) -> None:
        """Queue `message`. Raises LinkError if no broker answers.

        stamp: of the caller's own, where the broker `keeps_stamps`.
        Raises MessageError if JSON cannot hold it, or it is longer than the limit.
        """
        self._put([self._written(message)], policy, stamp)

    def publish_unique(
        self, message: TaskMessage, *, policy: RetryPolicy | None = None, stamp: Any = None
    ) -> str:
        """Queue `message` unless another task has its claim; return the id of who has it now.

        Only where the broker `keeps_stamps`. Raises as `publish` does.
        """
        ids: list[str] = []
        self._put([self._written(message)], policy, stamp, ids=ids)
        return ids[-1]

    def publish_many(
        self, messages: Sequence[TaskMessage], *, policy: RetryPolicy | None = None
    ) -> Iterator[int]:
        """Queue `messages` in parts; yield how many each part had, once the broker has it.

        A part is put in one step, all of it or nothing, where the broker `keeps_stamps`; elsewhere
        it is one message. Raises as `publish` does; MessageError before the first part.
        """
        written = [self._written(message) for message in messages]
        for part in _parts(written, AT_ONCE if self._broker.capabilities.keeps_stamps else 1):
            self._put(part, policy)
            yield len(part)

    @property
    def keeps_stamps(self) -> bool:
        """Whether a publish with a known stamp is not put again."""
        return self._broker.capabilities.keeps_stamps

    def _written(self, message: TaskMessage) -> Written:
        if len(self.queues) < MOST_QUEUES:
            self.queues.add(message.queue)
        signer, limit_bytes = self.signer, self._limit_bytes
        return Written(message, *write_message(message, signer=signer, limit_bytes=limit_bytes))

    def _put(
        self,
        messages: Sequence[Written],
        policy: RetryPolicy | None,
        stamp: Any = None,
        ids: list[str] | None = None,
    ) -> None:
        sender = self._sender()
        stamp = stamp or sender.stamp()

        def send() -> None:
            try:
                if ids is None:
                    self._sender().send(messages, stamp)
                else:
                    ids.append(self._sender().send_unique(messages[0], stamp))
            except LinkError:
                for message, headers, body in messages:
                    headers[AGAIN] = True  # perhaps only the answer was lost
                    if self.signer is not None:
                        self.signer.sign_again(headers, body, queue=message.queue)
                raise

        try:
            self._retry(send, policy)
        finally:
            sender.release(stamp)

    def broadcast(self, exchange: str, document: dict[str, Any]) -> None:
        """Send `document` to all that listen on the fanout `exchange` at this moment."""

        def send() -> None:
            # Each time, as another broker has another clock.
            body = to_json(sealed(document, self.signer, exchange=exchange, now_s=self._now_s))
            if len(body) > self._limit_bytes:
                limit = self._limit_bytes
                raise MessageError(f"broadcast of {len(body)} bytes: the limit is {limit}")
            self._sender().broadcast(exchange, body)

        self._retry(send)

    def notify(
        self,
        body: bytes,
        *,
        exchange: Exchange,
        routing_key: str,
        headers: dict[str, Any],
        at: str | None = None,
    ) -> None:
        """Send JSON once to all that listen on `exchange`. Raises LinkError.

        at: the URL of the broker, by default the one in use.
        """
        self._sender(at).notify(exchange, body, routing_key=routing_key, headers=headers)

    def bind(self, queue: str, exchange: Exchange, routing_key: str) -> None:
        """Have `queue` get what is published on `exchange`; see Sender.bind. Raises LinkError."""
        self._sender().bind(queue, exchange, routing_key)

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:
        """Mark the message of task `id` in `queue` as revoked; see Sender.revoke."""
        return self._retry(lambda: self._sender().revoke(queue, id, mark))

    def _retry(self, function: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        return (policy or self._policy).call(
            function,
            clock=self._clock,
            chance=self._chance,
            brokers=len(self.brokers),
            timeout_s=self._timeout_s,
        )

    def _sender(self, url: str | None = None) -> Sender:
        """Return the sender to a broker, by default the one in use."""
        url = url or self.brokers.current
        sender = self._senders.get(url)
        if sender is None:
            with self._lock:
                sender = self._senders.get(url) or self._broker.open_sender(
                    url,
                    timeout_s=self._timeout_s,
                    on_lost=self.brokers.failed,
                    server=self._server,
                )
                self._senders[url] = sender
        return sender

    def close(self) -> None:
        with self._lock:
            while self._senders:
                self._senders.popitem()[1].close()


def _parts(messages: Sequence[Written], most: int) -> Iterator[Sequence[Written]]:
    """Yield `messages` in parts of up to `most`, and up to BYTES_AT_ONCE."""
    start = size = 0
    for end, one in enumerate(messages):
        if end > start and (end - start == most or size + len(one.body) > BYTES_AT_ONCE):
            yield messages[start:end]
            start, size = end, 0
        size += len(one.body)
    if messages:
        yield messages[start:]


class SendOptions(TypedDict, total=False):
    """How one message is sent.

    countdown, eta: not to begin before then. expires: not to begin after then (seconds from
    now, or a time). ttl_s: not to begin when older than this on the broker's clock.
    priority: 0 (first) to 9 (last). coalesce: of the waiting messages with this key only the
    newest runs. soft_time_limit, time_limit: in seconds, instead of the task's own.
    link, link_error: signatures, as Celery writes them, of what follows a success or any
    other end; see canvas/signature.py. retry, retry_policy: for this message alone.
    """

    countdown: float | None
    eta: datetime | None
    expires: float | datetime | None
    ttl_s: float | None
    priority: int
    queue: str | None
    task_id: str | None
    coalesce: str | None
    soft_time_limit: float | None
    time_limit: float | None
    ignore_result: bool
    headers: dict[str, Any] | None
    link: dict[str, Any] | Sequence[dict[str, Any]]
    link_error: dict[str, Any] | Sequence[dict[str, Any]]
    retry: bool
    retry_policy: RetryPolicy | dict[str, Any] | None


def send(
    app: App,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    options: SendOptions,
    *,
    stamp: Any = None,
    claims: bool = True,
) -> str:
    """Send one task; return its id. Raises LinkError, MessageError, ConfigError.

    Missing options default to those of the task, if it is registered here.
    stamp: see `Publisher.publish`. claims: whether one that is unique takes its claim.
    """
    policy = app.retry_policy
    if options:
        check_options(name, options)
        policy = policy_for(app, options)
    at_s = 0.0 if app.on_sent is None else app.clock.wall_s()
    # A repeated attempt sends the same message, with the time of the first.
    now_s = app.broker_clock.known_s() or policy.call(
        app.broker_clock.now_s, clock=app.clock, chance=app.chance
    )
    task = app.tasks.get(name)
    message = _message(app, name, task, args, kwargs or {}, options, now_s=now_s)
    if task is not None and task.options.unique_lasts and claims:
        message = _claiming(task, message)
    if app.tracer is None:
        if parent := current_trace():
            message = msgspec.structs.replace(message, headers=parent | message.headers)
        message = _publish(app, message, policy, stamp)
    else:
        with app.tracer.sending(message) as traced:
            message = _publish(app, traced, policy, stamp)
    if app.on_sent is not None:
        app.on_sent(message, at_s=at_s)
    return message.id


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for options of a call that there are not, or that cannot be."""
    unknown = sorted(options.keys() - SendOptions.__optional_keys__)
    if unknown:
        from blimp.queue.words import SENDING, here  # of a mistake alone

        words = f"{', '.join(unknown)}{here(SENDING, *unknown)}"
        raise ConfigError(f"sending {name!r}: there is no option {words}")
    if options.get("priority") is not None:
        check_priority(options["priority"])
    check_limits(soft_s=options.get("soft_time_limit"), hard_s=options.get("time_limit"))


def policy_for(app: App, options: Mapping[str, Any]) -> RetryPolicy:
    """Return how often a message with these options is sent again. Raises ConfigError."""
    policy = policy_of(options.get("retry_policy"), app.retry_policy)
    return ONCE if options.get("retry") is False else policy


def _message(
    app: App,
    name: str,
    task: KnownTask | None,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: SendOptions,
    *,
    now_s: float,
) -> TaskMessage:
    fields: dict[str, Any] = {}
    if options:
        if options.get("coalesce") is not None:
            fields["coalesce"] = options["coalesce"]
        fields |= signatures_of(options)
    if task is not None and task.options.coalesce is not False and "coalesce" not in fields:
        fields["coalesce"] = coalescing_key(task, args, kwargs)
    if task is not None and task.options.fair_key is not None:
        fields["headers"] = fair_headers(task, args, kwargs) | (options.get("headers") or {})
    return make_message(
        name,
        tuple(args),
        kwargs,
        options,
        defaults=None if task is None else task.options,
        queue=app.queue,
        now_s=now_s,
        origin=origin_of(os.getpid()),
        **fields,
    )


def signatures_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the signatures in `options` as fields of a message. Raises MessageError."""
    fields: dict[str, Any] = {}
    for option, field in (("link", "callbacks"), ("link_error", "errbacks")):
        if signatures := listed(options.get(option)):
            for number, one in enumerate(signatures):
                check_signature(one, where=f"{option}[{number}]")
            fields[field] = signatures
    return fields


def _publish(app: App, message: TaskMessage, policy: RetryPolicy, stamp: Any) -> TaskMessage:
    """Publish; return the message that is queued now, of a unique task under the first's id."""
    if UNIQUE in message.headers:
        if claim_of(message.headers) is None:
            reason = (
                f"header {UNIQUE!r} is {message.headers[UNIQUE]!r:.80}: no claim of a unique task"
            )
            raise MessageError(reason)
        id = app.publisher.publish_unique(message, policy=policy, stamp=stamp)
        return message if id == message.id else msgspec.structs.replace(message, id=id)
    if message.coalesce is None:
        app.publisher.publish(message, policy=policy, stamp=stamp)
        return message
    coalescing = Coalescing(link=app.broker_link)
    number = policy.call(
        partial(coalescing.number, message.queue, message.coalesce),
        clock=app.clock,
        chance=app.chance,
    )
    message = msgspec.structs.replace(message, coalesce_number=number)
    app.publisher.publish(message, policy=policy, stamp=stamp)
    coalescing.remember(message)
    return message


def _claiming(task: KnownTask, message: TaskMessage) -> TaskMessage:
    """Return `message` with the claim of a unique task in its headers."""
    if message.coalesce is not None:
        raise ConfigError(f"task {task.name!r} is unique: it takes no coalesce")
    key = _key(task, "unique_key", message.args, message.kwargs)
    digest = digest_of(f"{message.queue} {task.name} {key}")
    claim = UniqueClaim(task.options.unique_lasts, digest, message.queue)
    headers = message.headers | {UNIQUE: claim.header}
    return msgspec.structs.replace(message, headers=headers)


def fair_headers(task: KnownTask, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, str]:
    """Return the header that names a call's tenant. Raises MessageError if none can be made."""
    key = _key(task, "fair_key", args, kwargs)
    check_name(key, f"fair_key of {task.name!r}")
    return {FAIR: key}


def _key(task: KnownTask, option: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return the key that an option makes of a call's arguments, which arrive as JSON has them."""
    try:
        args, kwargs = from_json(to_json([args, kwargs]))
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"arguments of {task.name!r}: JSON cannot hold them: {error}") from error
    return task.key_of(option, args, kwargs)


@cache
def origin_of(process: int) -> str:
    return f"{process}@{socket.gethostname()}"


_Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Positive = Annotated[float, Meta(gt=0.0, lt=MAX_NUMBER)]


@ready
class _Numbers(msgspec.Struct):
    """The options that are numbers. A signature's may come from others, so they are checked."""

    countdown: _Number | None = None
    ttl_s: _Positive | None = None
    time_limit: _Positive | None = None
    soft_time_limit: _Positive | None = None


def make_message(
    task: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
    *,
    defaults: TaskOptions | None,
    queue: str,
    now_s: float | None,
    origin: str,
    id: str | None = None,
    **fields: Any,
) -> TaskMessage:
    """Return the message of a task that is sent with `options`: SendOptions, or a signature's.

    defaults: for missing options, None if the task is not registered here. queue: for a task
    without one. now_s: the broker's time; None leaves the message without a time of issue.
    fields: of the message, instead of what the options say. Raises MessageError for a wrong
    option.
    """
    priority, ignore_result = NORMAL, False
    if defaults is not None:
        queue, priority = defaults.queue or queue, defaults.priority
        ignore_result = defaults.ignore_result
        if defaults.ttl_s is not None:
            fields["ttl_s"] = defaults.ttl_s
    if options:
        id, queue = id or options.get("task_id"), options.get("queue") or queue
        given, ignored = options.get("priority"), options.get("ignore_result")
        priority = priority if given is None else given
        ignore_result = ignore_result if ignored is None else ignored
        fields |= read_options(options, now_s)
        if headers := options.get("headers"):
            if headers.get(FAIR) is not None:
                check_name(headers[FAIR], f"header {FAIR!r} of {task!r}")
            fields.setdefault("headers", headers)
    return TaskMessage(
        id=id or new_id(),
        task=task,
        args=args,
        kwargs=kwargs,
        queue=queue,
        priority=priority,
        issued_ms=None if now_s is None else int(now_s * 1000),
        ignore_result=bool(ignore_result),
        origin=origin,
        **fields,
    )


def needs_now(options: Mapping[str, Any], defaults: TaskOptions | None) -> bool:
    """Return whether a message with these options needs the broker's time."""
    if defaults is not None and defaults.ttl_s is not None:
        return True
    return any(options.get(name) is not None for name in ("ttl_s", "countdown", "expires"))


def read_options(options: Mapping[str, Any], now_s: float | None) -> dict[str, Any]:
    """Return the numbers and times in `options` as fields of a message."""
    try:
        read = msgspec.convert(options, _Numbers)
    except msgspec.ValidationError:
        read = _read_numbers(options)
    found: dict[str, Any] = {"timelimit": (read.time_limit, read.soft_time_limit)}
    if read.ttl_s is not None:
        found["ttl_s"] = read.ttl_s
    if read.countdown is not None:
        assert now_s is not None
        found["eta_s"] = now_s + read.countdown
    for field, name in (("eta_s", "eta"), ("expires_s", "expires")):
        value = options.get(name)
        if value is None:
            continue
        try:
            if name == "expires" and isinstance(value, int | float) and not isinstance(value, bool):
                assert now_s is not None
                found[field] = now_s + value
            else:
                is_time = isinstance(value, datetime)
                found[field] = epoch_s(zoned(value, name) if is_time else value)
        except (TypeError, ValueError, OverflowError):
            reason = f"option {name!r} is {value!r:.80}, must be an ISO 8601 time"
            raise MessageError(reason) from None
    for field, name in (("eta_s", "eta or countdown"), ("expires_s", "expires")):
        if found.get(field) is not None and found[field] >= LATEST_S:
            raise MessageError(f"option {name!r}: must be before the year 9999")
    return found


def _read_numbers(options: Mapping[str, Any]) -> _Numbers:
    """Read them with the subclasses of float that msgspec does not take, such as NumPy's."""
    plain = {name: float(one) if isinstance(one, float) else one for name, one in options.items()}
    try:
        return msgspec.convert(plain, _Numbers)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        raise MessageError(f"option {name!r} is {plain.get(name)!r:.80}: {what}") from None
