"""Why the result of a task has not come: what is said when a caller has waited in vain.

Tested by test_silence.py.
"""

from __future__ import annotations

import contextlib
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.store import Store, StreamsOptions, Whereabouts
from blimp.queue.protocol.embed import MAP, STARMAP
from blimp.queue.protocol.message import EMERGENCY
from blimp.queue.protocol.read import parse_message
from blimp.queue.redis.keys import Keys, pool_keys
from blimp.queue.task import builtin_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.redis.fleet import Member

MOST_LOOKED_AT = 10_000  # messages of a queue
MOST_NAMED = 5


def explain(app: TaskApp, id: str) -> str:
    """Return why task `id` has not ended, as far as the broker knows; "" if it cannot be asked."""
    if not app.capabilities.on_redis:
        return ""
    return Search(app).reason(id)


class Search:
    """What is known of one app's messages now. Methods raise LinkError."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        link: Any = app.broker_link  # as much of a Link as is used
        options = StreamsOptions(broker=app.settings)
        self._store = Store(link=link, keys=Keys(), consumer="", options=options)
        self._fleet: Mapping[str, Member] = app.fleet.members()

    def reason(self, id: str) -> str:
        app = self._app
        app.revocations.load(now_s=app.broker_clock.now_s())
        if id in app.revocations:
            return "it is revoked, and no worker has ended it yet"
        sent = app.publisher.queues
        known = {app.queue, *(task.options.queue for task in app.tasks.values()), *sent}
        known |= {queue for one in self._fleet.values() for queue in one.queues}
        queues = sorted(filter(None, known))
        for queue in queues:
            with app.broker_link.link():
                where = self._store.find(self._store.keys.queue(queue), id, most=MOST_LOOKED_AT)
            if where.found is Found.NOT_SEARCHED:
                return f"it is not among the first {MOST_LOOKED_AT} messages of queue {queue!r}"
            if where.found is not Found.ABSENT:
                return self._why(where, id=id, queue=queue)
        return (
            f"its message is in none of the queues {', '.join(queues)}: it was not sent, or what "
            "comes before it has not ended, or its result is not kept"
        )

    def _why(self, where: Whereabouts, *, id: str, queue: str) -> str:
        if where.found is Found.IN_FLIGHT:
            worker = where.holder.decode(errors="replace").removeprefix(f"{self._app.name}.")
            return f"worker {worker!r} has it, where it runs or waits for a thread or its rate"
        message = self._read(where, queue)
        with self._app.broker_link.link():
            paused = self._store.counts(self._store.keys.queue(queue)).paused
        if paused and (message is None or message.priority != EMERGENCY):
            return f"queue {queue!r} is paused"
        workers = self._workers(queue)
        if not workers:
            return self._nobody(queue)
        if message is not None:
            task = self._task_of(message)
            knowing = [name for name in workers if task in self._tasks_of(name)]
            if task is not None and not knowing and workers <= {*self._fleet}:
                return f"no live worker of queue {queue!r} knows task {task!r}"
            if where.is_aside and knowing:
                return f"it waits for a worker whose code can run it, such as {knowing[0]!r}"
        if where.packed and not where.place and message is not None:
            return self._scheduled(message, id=id)
        if where.place:
            return f"it waits in queue {queue!r} for the turn of its tenant"
        return f"it waits in queue {queue!r} behind {where.before} others, for {_count(workers)}"

    def _task_of(self, message: TaskMessage) -> str | None:
        """Return the name of the task that is called; None if every worker knows it."""
        name = message.task
        if name in (MAP, STARMAP):
            called = message.kwargs.get("task")
            name = str(called.get("task")) if isinstance(called, dict) else name
        return None if builtin_task(self._app, name) is not None else name

    def _tasks_of(self, worker: str) -> Mapping[str, str]:
        return self._fleet[worker].tasks if worker in self._fleet else {}

    def _scheduled(self, message: TaskMessage, *, id: str) -> str:
        app, task = self._app, self._app.tasks.get(message.task)
        if task is not None and task.options.is_limited:
            options = task.options
            if options.requires is not None:
                pool, what = app.pools[options.requires], f"a resource of pool {options.requires!r}"
            else:
                key = task.key_of("concurrency_key", message.args, message.kwargs)
                pool = app.pools.limit(f"{app.name} {task.name} {key}", options.concurrency)
                what = f"the limit of {options.concurrency} for key {key!r}"
            waiting = pool_keys(pool.name).waiting
            before: Any = app.broker_link.ask(lambda client: client.zrank(waiting, id))
            if before is not None:
                return f"it waits for {what}, behind {before} others"
        left_s = (message.eta_s or 0.0) - app.broker_clock.now_s()
        if task is not None and task.options.rate_limit is not None and message.retries == 0:
            return f"it waits for the rate limit of {task.name!r}, {task.options.rate_limit}"
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(message.eta_s or 0.0))
        return f"it waits for its time, {at}, in {max(0.0, left_s):.0f} s"

    def _workers(self, queue: str) -> set[str]:
        """Return who consumes `queue`: workers of the app, and others by what they are there."""
        found = {name for name, one in self._fleet.items() if queue in one.queues}
        with contextlib.suppress(ResponseError):  # no consumer has been there
            others = self._store.consumers(self._store.keys.queue(queue))
            names = {name.removeprefix(f"{self._app.name}.") for name in others}
            found |= names - {*self._fleet}
        return found

    def _nobody(self, queue: str) -> str:
        counts: dict[str, int] = {}
        for one in self._fleet.values():
            for name in one.queues:
                counts[name] = counts.get(name, 0) + 1
        near = get_close_matches(queue, counts) or sorted(counts)[:MOST_NAMED]
        others = ", ".join(f"{name!r} has {_count(range(counts[name]))}" for name in near)
        return f"no worker consumes {queue!r}; " + (
            others or f"no worker of app {self._app.name!r} runs"
        )

    def _read(self, where: Whereabouts, queue: str) -> TaskMessage | None:
        """Return the message, None if it cannot be read."""
        try:
            payload = where.payload()
            return parse_message(
                headers=payload["headers"],
                body=payload["body"],
                content_type=payload.get("content-type"),
                content_encoding=payload.get("content-encoding"),
                queue=queue,
                priority=payload["properties"].get("priority"),
                limit_bytes=self._app.limit_bytes,
            )
        except Exception:  # anybody may have sent it
            return None


def _count(workers: Any) -> str:
    return f"{len(workers)} worker{'s' * (len(workers) != 1)}"
