"""What can be done with the messages on the server. Each method is one round trip, one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import redis

from blimp.queue.brokers.base import MOST_DELIVERIES, MOST_SEARCHED, BrokerOptions, Found
from blimp.queue.brokers.streams.envelope import NONE, Claim, Stamp, unpack
from blimp.queue.options import Options
from blimp.queue.redis.client import ClientOptions, Link
from blimp.queue.redis.clock import READ_CLOCK, monotonic_words
from blimp.queue.redis.keys import GROUP, LEVELS, NOBODY, Keys, QueueKeys
from blimp.queue.redis.scripts import Script, read_functions, read_scripts

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Aside
    from blimp.queue.brokers.streams.envelope import Envelope

DONE, SETTLED, LOST = 1, 0, -1  # how a delivery's end was answered
UNKNOWN = 2  # how a renewal may be: the server was emptied
FORGET_AFTER_MS = 3_600_000  # a silent consumer that holds nothing
PURGE_AT_ONCE = SEARCH_AT_ONCE = 1000


def _load() -> dict[str, Script]:
    """Return the scripts of this folder by name: a mistake in a name is a KeyError."""
    here = Path(__file__).parent
    shared = f"local GROUP = '{GROUP}'\n" + (here / "shared.lua").read_text()
    # A final result is final and a part is counted once, whichever script writes.
    ends = read_functions("results.lua") + shared
    scripts: dict[str, Script] = {}
    for name in ("publish", "deliver", "complete", "queues"):
        functions = {"complete": ends, "deliver": READ_CLOCK + shared}.get(name, shared)
        scripts |= read_scripts(here / f"{name}.lua", functions=functions)
    return scripts


SCRIPTS = _load()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """oldest_age_s: of what is ready; None if nothing is."""

    ready: int
    in_flight: int
    scheduled: int
    dead: int
    oldest_age_s: float | None
    paused: bool = False


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What one take brought. next_due_ms: when the schedule's next is due, in ms from now.
    expired: how many were found too old, and are gone. has_aside: whether messages wait for a
    consumer that knows their task.
    """

    deliveries: list[tuple[Claim, list[bytes]]]
    next_due_ms: int | None
    expired: int
    has_aside: bool = False


class Whereabouts(msgspec.Struct, frozen=True):
    """Where a message is. before: how many are in front of it in the streams of its queue.

    place: in what waits for turns or is set aside. holder: the consumer that has it. packed: of
    one that is not in a stream, what it is there. fields: of its entry.
    """

    found: Found
    before: int = 0
    place: bytes = b""
    holder: bytes = b""
    packed: bytes = b""
    fields: Sequence[bytes] = ()

    @property
    def is_aside(self) -> bool:
        return b"\n" in self.place

    def payload(self) -> dict[str, Any]:
        """Return the message as kombu has it. Raises ValueError if it cannot be read."""
        fields = list(self.fields)
        if self.packed:
            packed: Any = msgspec.msgpack.decode(self.packed)
            fields = [one.encode() for one in packed[-1]]
        return unpack(fields)


class StaleBindings(Exception):
    """fields: the bindings as they are now."""

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        super().__init__("the bindings have changed")
        self.fields = fields


def _nothing(*_: object) -> None:
    return None


class StreamsOptions(Options, frozen=True, kw_only=True):
    """consumer: its name; a unique one by default. A consumer that starts requeues what its name
        held. Of two consumers with one name the later one wins, and the earlier loses its leases.
    lease_s: how long after its holder's last renewal a message may be taken by others.
    max_deliveries: after so many it is a dead letter.
    prefix: of every key on the server.
    on_lease_lost: called with the delivery tag, from any thread.
    broker: as an app uses it. client: how it connects.
    """

    consumer: str | None = None
    lease_s: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0
    max_deliveries: Annotated[int, msgspec.Meta(ge=1)] = MOST_DELIVERIES
    prefix: str = "blimp"
    on_lease_lost: Callable[[str], None] = _nothing
    broker: BrokerOptions = BrokerOptions()
    client: ClientOptions = ClientOptions()


class Store:
    """The scripts with their keys and arguments. Thread-safe. Raises redis-py's errors."""

    def __init__(self, *, link: Link, keys: Keys, consumer: str, options: StreamsOptions) -> None:
        self.keys = keys
        self.consumer = consumer
        self.link = link
        self._lease_ms = int(options.lease_s * 1000)
        self._max_deliveries = options.max_deliveries
        limits = options.broker
        self._dead_limit = f"{limits.max_dead_letters}:{limits.max_dead_letter_bytes}"

    def run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        return SCRIPTS[name].run(self.link.client, keys, args)

    # --- into the queues ---------------------------------------------------------------------

    def put_many(
        self, queues: Sequence[str], envelopes: Sequence[Envelope], *, stamp: Stamp
    ) -> None:
        """Put each of `envelopes` into the queue at its place in `queues`: all or none, once."""
        numbers = {queue: number for number, queue in enumerate(dict.fromkeys(queues))}
        keys = [stamp.key]
        for one in map(self.keys.queue, numbers):
            keys += (one.later, one.clock, one.bell, *one.levels)
        args: list[Any] = [stamp.number, stamp.remember_ms]
        for queue, put in zip(queues, envelopes, strict=True):
            args += (numbers[queue], put.level, put.due_ms, put.head, put.body, put.tenant)
        self.link.run(SCRIPTS["put_many"], keys, args)

    def publish(
        self,
        queues: Sequence[tuple[QueueKeys, bool]],
        envelope: Envelope,
        *,
        stamp: Stamp = NONE,
        exchange: str = "",
        version: str = "",
    ) -> list[QueueKeys]:
        """Put one message into `queues`, each with whether it may have expired, once.

        Returns those that had expired and got nothing. Raises StaleBindings, with nothing done, if
        the bindings of `exchange` are no longer those of `version`.
        """
        keys = [self.keys.exchange(exchange), stamp.key]
        for queue, _ in queues:
            level = queue.levels[envelope.level]
            keys += [level, queue.later, queue.bell, queue.alive, queue.ttl]
        args = [
            version, envelope.due_ms, envelope.level, envelope.head, envelope.body,
            "" if envelope.ttl_ms is None else envelope.ttl_ms, stamp.number, stamp.remember_ms,
            GROUP, self._lease_ms, *(int(mortal) for _, mortal in queues),
        ]  # fmt: skip
        is_current, answer = self.run("publish", keys, args)
        if not is_current:
            raise StaleBindings(dict(zip(answer[::2], answer[1::2], strict=True)))
        return [queues[number][0] for number in answer]

    # --- out of the queues -------------------------------------------------------------------

    def make_group(self, queue: QueueKeys) -> None:
        """Have the group on every stream of `queue`; it begins with the oldest message."""
        for stream in (*queue.levels, queue.bell):
            try:
                self.link.client.xgroup_create(stream, GROUP, id="0", mkstream=True)
            except redis.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    def take(
        self,
        queues: Sequence[QueueKeys],
        *,
        room: int,
        early_ms: int = 0,
        knows: Mapping[str, str] = {},
    ) -> Taken:
        """Deliver up to `room` messages: level by level, in a level the put back and dead first.

        early_ms: how long before it is due a scheduled one may be taken. knows: the version of
        each task of which messages that were set aside are delivered, too.
        If the answer is lost with its connection, `begin` finds the deliveries: no other
        consumer takes what this one holds.
        """
        keys = [
            key
            for queue in queues
            for key in (*queue.levels, queue.bell, queue.later, queue.dead, queue.ttl, queue.clock)
        ]
        args = [GROUP, self.consumer, room, self._lease_ms, self._max_deliveries, self._dead_limit]
        args += (LEVELS, early_ms, NOBODY, monotonic_words(), *chain(*knows.items()))
        answer = SCRIPTS["take"].run_once(self.link.client, keys, args)
        now_ms, due_ms, taken, expired, has_aside = answer
        return Taken(
            deliveries=[
                (self.claim(queues[number], level, id.decode(), fence), fields)
                for number, level, id, fence, fields in taken
            ],
            next_due_ms=None if due_ms < 0 else max(0, due_ms - now_ms),
            expired=expired,
            has_aside=has_aside > 0,
        )

    def claim(self, queue: QueueKeys, level: int, id: str, fence: int) -> Claim:
        tag = f"{queue.name}/{level}/{id}/{fence}"
        return Claim(tag=tag, queue=queue, level=level, id=id, fence=fence)

    def begin(self, queues: Sequence[QueueKeys], *, known: Iterable[Claim]) -> int:
        """Be ready to take from `queues`; return how many messages were put back.

        Those are what this consumer's name has pending and is not in `known`.
        """
        keys = [key for queue in queues for key in (*queue.levels, queue.bell, queue.alive)]
        args = [GROUP, self.consumer, NOBODY, LEVELS, FORGET_AFTER_MS]
        return int(self.run("begin", keys, [*args, *(f"{one.stream} {one.id}" for one in known)]))

    def is_shared(self, queue: QueueKeys) -> bool:
        """Return whether another consumer has looked for messages within a lease."""
        return bool(self.consumers(queue) - {self.consumer})

    def consumers(self, queue: QueueKeys) -> set[str]:
        """Return who has looked for messages within a lease."""
        found: Any = self.link.client.xinfo_consumers(queue.bell, GROUP)  # see `take`
        names = {one["name"].decode() for one in found if one["idle"] <= self._lease_ms}
        return names - {NOBODY}

    # --- the end of deliveries ---------------------------------------------------------------

    def ack(self, claims: Sequence[Claim]) -> list[int]:
        """Complete deliveries; return DONE, SETTLED or LOST for each.

        Not repeated, or SETTLED would not say whether another consumer had ended it.
        """
        return self._each(SCRIPTS["ack"].run_once, claims)

    def complete(self, keys: list[str], args: list[Any]) -> list[int | str | list[int]]:
        """Complete deliveries, each with its result and what follows it, or not at all.

        keys, args: of CompletionArguments. Returns DONE, SETTLED or LOST for each, or the
        server's error as text, or which parts of its follow-up were the last: then it is to be
        repeated with what begins.
        """
        answers = self.run("complete", keys, [GROUP, self.consumer, self._dead_limit, *args])
        return [one.decode() if isinstance(one, bytes) else one for one in answers]

    def renew(self, claims: Sequence[Claim]) -> list[int]:
        """Renew leases; return DONE, SETTLED, LOST or UNKNOWN for each."""
        return self._each(SCRIPTS["renew"].run, claims)

    def release(self, claims: Sequence[Claim], *, seen: bool = True) -> list[int]:
        """Put deliveries back in their place; `seen`: they count."""
        keys = [key for one in claims for key in (one.stream, one.queue.bell)]
        args: list[Any] = [GROUP, self.consumer, NOBODY]
        for one in claims:
            args += [one.id, one.fence, one.fence if seen else one.fence - 1]
        answers: list[int] = self.run("release", keys, args)
        return answers

    def set_aside(self, claim: Claim, aside: Aside) -> int:
        """Have a delivery wait for a consumer that knows its task; see `take`."""
        args = [GROUP, self.consumer, claim.id, claim.fence, claim.level, aside.task]
        args += [",".join(aside.versions), round(1e3 * aside.wait_s), claim.counted - 1]
        return int(self.run("set_aside", [claim.stream, claim.queue.later, claim.queue.bell], args))

    def step(
        self, claim: Claim, key: str, keep_s: int, *one: str | bytes
    ) -> dict[str, bytes] | None:
        """Return what is in the hash of steps `key`, or store `one`; None if it is not held."""
        args = [GROUP, self.consumer, claim.id, claim.fence, keep_s, *one]
        found = self.run("step", [claim.stream, key], args)
        if found is None:
            return None
        return {n.decode(): data for n, data in zip(found[::2], found[1::2], strict=True)}

    def dead_letter(self, claim: Claim, reason: str) -> int:
        """Make a delivery a dead letter."""
        args = [GROUP, self.consumer, claim.id, claim.fence, self._dead_limit, claim.level, reason]
        return int(self.run("dead_letter", [claim.stream, claim.queue.dead], args))

    def _each(self, run: Callable[..., list[int]], claims: Sequence[Claim]) -> list[int]:
        args: list[Any] = [GROUP, self.consumer]
        for one in claims:
            args += [one.id, one.fence]
        return run(self.link.client, [one.stream for one in claims], args)

    # --- whole queues ------------------------------------------------------------------------

    def counts(self, queue: QueueKeys) -> Counts:
        keys = [*queue.levels, queue.later, queue.dead, queue.clock]
        _, (*levels, scheduled, dead, paused) = self.run("levels", keys, [GROUP, NOBODY, LEVELS])
        ready, in_flight, ages_ms = levels[::3], levels[1::3], levels[2::3]
        if min(*ready, scheduled, dead) < 0:
            raise redis.ResponseError(f"queue {queue.name!r}: WRONGTYPE of one of its keys")
        age_ms = max(ages_ms)
        return Counts(
            ready=sum(ready),
            in_flight=sum(in_flight),
            scheduled=scheduled,
            dead=dead,
            oldest_age_s=None if age_ms < 0 else age_ms / 1000.0,
            paused=paused > 0,
        )

    def revoke(self, queue: QueueKeys, id: str, mark: bytes) -> Found:
        """Mark the message of task `id` as revoked if it waits; `mark` goes with it."""
        return self.find(queue, id, mark=mark).found

    def find(
        self, queue: QueueKeys, id: str, *, mark: bytes = b"", most: int | None = None
    ) -> Whereabouts:
        """Say where the message of task `id` is; with a mark, revoke it if it waits.

        Looks at `most` messages, by default MOST_SEARCHED, in parts: for a person's question.
        """
        where = self._look_for(queue, id, mark=mark, most=most)
        if where.found is Found.ABSENT:  # or set aside, or sent again for later, meanwhile
            where = self._look_for(queue, id, mark=mark, most=most)
        return where

    def _look_for(self, queue: QueueKeys, id: str, *, mark: bytes, most: int | None) -> Whereabouts:
        spellings = [
            f'"id":{space}{text}'
            for text in {json.dumps(id), json.dumps(id, ensure_ascii=False)}
            for space in ("", " ")
        ]
        texts = [one.encode() for one in spellings]
        left = MOST_SEARCHED if most is None else most
        # In the order in which a message moves: one that does meanwhile is found where it is then.
        client = self.link.client
        scheduled = client.zscan_iter(queue.later, count=SEARCH_AT_ONCE)
        turns = client.hscan_iter(queue.messages, count=SEARCH_AT_ONCE)
        for place, message in chain(((b"", packed) for packed, _ in scheduled), turns):
            left -= 1
            if any(text in message for text in texts):
                args = [message, id, mark, place, *spellings]
                if self.run("revoke_scheduled", [queue.later, *queue.levels], args):
                    return Whereabouts(Found.MARKED, place=place, packed=message)
            if left <= 0:
                return Whereabouts(Found.NOT_SEARCHED)
        before = 0
        for stream in queue.levels:
            start = "-"
            while start:
                if left <= 0:
                    return Whereabouts(Found.NOT_SEARCHED, before=before)
                args = [GROUP, NOBODY, start, SEARCH_AT_ONCE, id, mark, *spellings]
                last, answer, count, *of = self.run("revoke", [stream], args)
                before += count
                if of:
                    found = Found.IN_FLIGHT if answer else Found.MARKED
                    return Whereabouts(found, before=before, holder=of[0], fields=of[1])
                start = f"({last.decode()}" if last else ""
                left -= SEARCH_AT_ONCE if last else 0
        return Whereabouts(Found.ABSENT, before=before)

    def messages(self, queue: QueueKeys) -> Iterator[Whereabouts]:
        """Yield what is in `queue`, in flight or not; of each kind the first MOST_SEARCHED."""
        client = self.link.client
        scheduled = (member for member, _ in client.zscan_iter(queue.later, count=SEARCH_AT_ONCE))
        others = client.hscan_iter(queue.messages, count=SEARCH_AT_ONCE)
        for packed in (scheduled, (packed for _, packed in others)):
            for one in islice(packed, MOST_SEARCHED):
                yield Whereabouts(Found.MARKED, packed=one)
        for stream in queue.levels:
            start = "-"
            for _ in range(MOST_SEARCHED // SEARCH_AT_ONCE):
                entries: Any = client.xrange(stream, min=start, count=SEARCH_AT_ONCE)
                for id, fields in entries:
                    flat = [*chain(*fields.items())]
                    yield Whereabouts(Found.MARKED, fields=flat)
                    start = f"({id.decode()}"
                if len(entries) < SEARCH_AT_ONCE:
                    break

    def pause(self, queue: QueueKeys, *, resume: bool = False) -> bool:
        """Deliver nothing of `queue` but emergencies, or all again; return whether that is new.

        What a consumer has it keeps.
        """
        keys, word = [queue.clock, queue.bell, *queue.levels], "resume" if resume else "pause"
        return bool(self.run("pause", keys, [GROUP, word]))

    def purge(self, queue: QueueKeys) -> int:
        """Drop what waits in `queue`; return how many."""
        dropped = 0
        while True:
            args = [GROUP, NOBODY, PURGE_AT_ONCE]
            now = int(self.run("purge", [*queue.levels, queue.later, queue.clock], args))
            dropped += now
            if now < PURGE_AT_ONCE:
                return dropped

    def requeue_dead(
        self, queue: QueueKeys, id: str, *, head: bytes = b"", forgetting: Sequence[str] = ()
    ) -> bool:
        """Put a dead letter at the end of its level, with a new `head` if there is one.

        forgetting: keys that are deleted in the same step. Returns False, with nothing done,
        if the letter is gone.
        """
        keys = [queue.dead, queue.later, queue.bell, *queue.levels, *forgetting]
        return bool(self.run("requeue_dead", keys, [id, LEVELS, head]))

    def delete(self, queue: QueueKeys) -> list[str]:
        """Delete a queue and its bindings; return the exchanges that had some."""
        keys = [queue.exchanges, *(key for key in queue.all() if key != queue.exchanges)]
        changed = self.run("delete", keys, [queue.name, self.keys.exchange("")])
        return [exchange.decode() for exchange in changed]

    def change_binding(self, exchange: str, verb: str, what: str, *, queue: str) -> bool:
        """Add or remove a binding, or set the type; say whether that changed anything."""
        keys = [self.keys.exchange(exchange), self.keys.queue(queue).exchanges]
        return bool(self.run("bind", keys, [verb, what, exchange]))

    def keep(self, queue: QueueKeys, *, expires_ms: int) -> None:
        """Renew the life of a queue that expires if it is not used for `expires_ms`."""
        keys = [queue.alive, queue.exchanges, *queue.all(), queue.dead]
        self.run("keep", keys, [expires_ms, self.keys.exchange("")])

    def leave(self, queues: Sequence[QueueKeys]) -> None:
        """Forget this consumer and those long silent, if they hold nothing."""
        streams = [stream for queue in queues for stream in (*queue.levels, queue.bell)]
        self.run("leave", streams, [GROUP, self.consumer, FORGET_AFTER_MS])
