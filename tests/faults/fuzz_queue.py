"""What comes over the broker, read in this process: the worker's own readers, without a server.

A message goes through the envelope, the decoder, all middleware, the task's function and the
completion; a broadcast through the listener, the receiver or remote control, and its handler. Both
end at a real flight side that cannot be armed. There is no server: `NoServer` answers for it.

The first byte of an input says whether the worker has a key and whether what comes is signed with
it. With a key, what nobody signed must reach nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from types import SimpleNamespace
from typing import Any

import msgspec

from blimp.actions import ACTIONS
from blimp.clock import ManualClock
from blimp.errors import NotGenuine
from blimp.queue.app import TaskApp
from blimp.queue.broadcast.extension import ControlExtension
from blimp.queue.brokers.streams.consumer import HEAD_ROOM_BYTES, StreamsDelivery
from blimp.queue.brokers.streams.envelope import BODY, HEAD, Claim, open_message, post
from blimp.queue.celery.kombu_broker import KombuSender, MemoryBroker
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.signing import HEADER, SEAL, Signer
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.keys import RESULT_PREFIX, Keys
from blimp.queue.resources import pool_server
from blimp.queue.results.redis_backend import STORE
from blimp.queue.steps import here
from blimp.queue.worker.aside import AsideRule
from blimp.queue.worker.decode import Decoder
from blimp.queue.worker.job import Job
from blimp.queue.worker.pools import ThreadCall, drive
from blimp.queue.worker.worker import Worker
from blimp.ship import Lockstep
from blimp.tasks.app import build_ship_app
from blimp.types import Command, Heartbeat, Outcome, Snapshot
from tests.faults.fuzz_target import Broken, Target, check_at_rest, unarmable

URL = "redis://127.0.0.1:1/0"  # nothing listens there
VEHICLE = "twin"
KEY = "a key of the fuzzer's ships"
START_S = 1000.0  # the worker is up since 0
SENT_S = START_S + 1.7e9  # on the broker's clock
ISSUED_MS = int(1e3 * SENT_S)
CYCLE_EVERY = 64  # commands that reach the ship
PROBE_EVERY = 1000  # inputs
KEPT = 256  # answers of the ship, and results

# What the first byte says.
HAS_KEY, IS_SIGNED, IS_COMMAND, COMES_AGAIN = 1, 2, 4, 8


class FuzzClock(ManualClock):
    """Each input is read at the same moment, so that what is fresh stays so."""

    def put_back(self) -> None:
        self._now_s = START_S


class NoServer:
    """Answers as a Redis server that holds nothing, on this machine's clock. Keeps results."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.results: dict[str, bytes] = {}
        self.stored: list[tuple[str, bytes]] = []  # by the present input
        pool = [["token", "1700000000000000"], [], [], []]
        self._answers = {STORE.digest: 1, pool_server._SCRIPT.digest: pool}

    def time(self) -> tuple[int, int]:
        return int(self._clock.wall_s()), int(self._clock.wall_s() % 1.0 * 1e6)

    def execute_command(self, name: str, digest: str, count: int, *given: Any) -> Any:
        answer = self._answers[digest]
        if digest == STORE.digest:
            self.results[given[0]] = given[1]
            self.stored.append((given[0], given[1]))
            if len(self.results) > KEPT:
                del self.results[next(iter(self.results))]
        return answer

    def get(self, key: str) -> None: ...

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return {}

    def set(self, key: str, value: bytes, **options: Any) -> bool:
        return True

    def delete(self, *keys: str) -> int:
        return 0

    def xrevrange(self, key: str, count: int) -> list[Any]:
        return []

    def close(self) -> None: ...


class Errors:
    """A worker's log: keeps the first thing that is logged with a traceback."""

    def __init__(self) -> None:
        self.first = ""

    def exception(self, event: str, **fields: Any) -> None:
        import traceback

        self.first = self.first or f"{event} {fields}: {traceback.format_exc(limit=-4)}"

    def __getattr__(self, level: str) -> Any:
        return lambda *_, **__: None


class FlightSide:
    """The worker's mailbox, and the flight control behind it; counts the commands it gets."""

    def __init__(self, ship: Lockstep) -> None:
        self._ship = ship
        self.commands = 0

    def call(self, command: Command, *, timeout_s: float) -> Outcome:
        """As over the socket: encoded and decoded. Most without a cycle, which takes 0.3 ms."""
        command = msgspec.json.decode(msgspec.json.encode(command), type=Command)
        self.commands += 1
        if self.commands % CYCLE_EVERY == 0:
            outcome = self._ship.deliver(command)
            check_at_rest(self._ship)
            outcomes = self._ship._inbox.outcomes
            if len(outcomes) > KEPT:
                outcomes.clear()
            return outcome
        loop = self._ship._ship.loop
        flags = loop._flags_seen
        assert flags is not None
        return loop._commander.handle(
            command, now_s=self._ship.now_s, state=loop.state, flags=flags
        )

    def wait(self, id: str, *, timeout_s: float) -> Outcome | None:
        raise Broken(f"{id} is under way, on a ship that cannot be armed")

    def snapshot(self) -> Snapshot:
        return self._ship.snapshot()

    def snapshot_age_s(self) -> float:
        return 0.0

    def greet(self, *, link: bool, deaf: str | None = None) -> bool:
        return True

    def relay(self, heartbeat: Heartbeat) -> bool:
        return True


class Side:
    """One worker of the ship, not run: its readers are called. has_key: it has a signing key."""

    def __init__(self, ship: Lockstep, *, has_key: bool) -> None:
        self.clock = FuzzClock()
        self.flight = FlightSide(ship)
        self.log = Errors()
        self.server = NoServer(self.clock)
        self.app: TaskApp = build_ship_app(
            vehicle=VEHICLE,
            broker=URL,
            mailbox=self.flight,
            clock=self.clock,
            signing_key=KEY if has_key else None,
        )
        self.worker = Worker(app=self.app, name=VEHICLE, log=self.log)
        self.worker._alarms.close()  # a time limit is real time, and would come at random
        control = self.worker.extension(ControlExtension)
        self.broadcasts, self.remote = control.broadcasts, control.remote
        results: Any = self.app.results
        for link in (self.app.broker_link, results.server, *self.broadcasts._links):
            _answer(link, self.server)
        self.clock.put_back()
        self.app.broker_clock.now_s()
        self.broadcasts._clocks[URL].now_s()

    def check(self) -> None:
        """Raise Broken for what the worker would have written with a traceback, or has ended."""
        if self.log.first:
            raise Broken(self.log.first)
        if self.worker._stops.stopping.is_set():
            raise Broken("the worker stops")


def _answer(link: RedisServer, server: Any) -> None:
    ours: Any = SimpleNamespace(client=server, close=server.close)
    ours.run = lambda script, keys, args: script.run(server, keys, args)
    link._links[URL] = ours


class Both(Target):
    """A worker without a key and one with it, of one ship."""

    def __init__(self) -> None:
        self._ship = Lockstep(VEHICLE, seed=1)
        unarmable(self._ship)
        self._sides = [Side(self._ship, has_key=has_key) for has_key in (False, True)]
        self._ground = Signer(KEY)
        self._count = 0

    def feed(self, data: bytes) -> None:
        first, rest = (data[:1] or b"\0")[0], data[1:]
        side = self._sides[first & HAS_KEY]
        size = int.from_bytes(rest[:2], "big") % (len(rest) + 1)
        side.clock.put_back()
        side.server.stored.clear()
        self.read(side, first, rest[2 : 2 + size], rest[2 + size :])
        side.check()
        self._count += 1
        if self._count % PROBE_EVERY == 0:
            self.finish()

    def read(self, side: Side, first: int, head: bytes, body: bytes) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        for side in self._sides:
            side.clock.put_back()
            self.probe(side)
            side.check()
        check_at_rest(self._ship)

    def probe(self, side: Side) -> None:
        """Raise Broken unless what is genuine is still done."""

    def close(self) -> None:
        for side in self._sides:
            side.app.close()
        self._ship.close()


class Acker:
    """Takes what ended, in the thread that ran it."""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def put(self, completion: Any) -> None:
        self.ended = [completion]

    def until_done(self, call: Any, *arguments: Any) -> bool:
        call(*arguments)
        return True

    def wait_out(self, error: Exception) -> bool:
        raise Broken(f"it asked the server for what no server knows: {error!r}")

    def wait_written(self) -> None: ...


class Message(Both):
    """After the first byte two say how long the head is; what follows it is the body."""

    def __init__(self) -> None:
        super().__init__()
        self._queue = Keys().queue(f"blimp.{VEHICLE}")
        self._ackers = [Acker(), Acker()]
        self._decoders = []
        self._number = 0
        for side, acker in zip(self._sides, self._ackers, strict=True):
            runner: Any = side.worker.runner
            runner._acker = acker
            app, counts, log = side.app, side.worker.counts, side.log
            aside = AsideRule(app=app, counts=counts, log=log)
            self._decoders.append(
                Decoder(app=app, worker=VEHICLE, aside=aside, counts=counts, log=log)
            )
        self._genuine: set[tuple[str, bytes]] = set()  # seals and bodies, of seeds
        self._done: set[str] = set()  # seals that were accepted
        self.seeds = list(self._make_seeds())

    def _make_seeds(self) -> list[bytes]:
        step = {"task": "blimp.ping", "args": [], "kwargs": {}, "options": {"task_id": "next"}}
        chain = {"task": "celery.chain", "args": [], "kwargs": {"tasks": [step, step]},
                 "options": {}, "subtask_type": "chain", "immutable": True}  # fmt: skip
        given: list[dict[str, Any]] = [
            {"task": f"blimp.{name}", "kwargs": {"name": "left", "altitude_m": 2.0}}
            for name in ACTIONS
        ]
        given += [
            {"task": "blimp.status"},
            {"task": "blimp.ping", "args": (1, [None, {"a": 1.5}])},
            {"task": "blimp.ping", "callbacks": (step,), "errbacks": (step,)},
            {"task": "blimp.ping", "chain": (step, chain)},
            {"task": "blimp.ping", "chord": step, "group_id": "g", "group_index": 1},
            {"task": "blimp.ping", "eta_s": 1.7e9, "expires_s": 1.7e9 + 1e4, "priority": 9},
            {"task": "blimp.ping", "coalesce": "k", "coalesce_number": 7, "origin": "me"},
            {"task": "blimp.ping", "timelimit": (10.0, 5.0), "root_id": "r", "parent_id": "p"},
            {"task": "celery.map", "args": (step, [[1], [2]])},
            {"task": "no.such.task", "chain": (step,)},
        ]
        headers = {"blimp_vehicle": VEHICLE, "blimp_source": "me", "blimp_authority": None}
        found = []
        for number, one in enumerate(given):
            for has_key, signer in ((0, None), (HAS_KEY, self._ground)):
                message = TaskMessage(
                    id=f"seed-{number}", queue=self._queue.name, issued_ms=ISSUED_MS, ttl_s=5.0,
                    headers=dict(headers), **one,
                )  # fmt: skip
                packed = post(message, signer=signer)
                if signer is not None:
                    sent = msgspec.json.decode(packed.head)["headers"]
                    self._genuine.add((sent[SEAL], packed.body))
                tail = len(packed.head).to_bytes(2, "big") + packed.head + packed.body
                found.append(bytes((has_key,)) + tail)
                if signer is None:
                    found.append(bytes((HAS_KEY | IS_SIGNED,)) + tail)
                    found.append(bytes((COMES_AGAIN,)) + tail)
        return found

    def read(self, side: Side, first: int, head: bytes, body: bytes) -> None:
        is_signed = bool(first & HAS_KEY and first & IS_SIGNED)
        if is_signed:
            head = _signed(head, body, signer=self._ground, queue=self._queue.name)
        before = side.flight.commands
        seal = self._run(side, first, head, body)
        if not first & HAS_KEY or is_signed:
            return
        if seal is None:
            self._check_no_trace(side, head, body, before)
            return
        if (seal, body) not in self._genuine:
            raise Broken(f"what nobody signed was accepted, seal {seal!r}")
        if seal in self._done:
            raise Broken(f"a copy was accepted, seal {seal!r}")
        if not self._ackers[1].ended[0].dead:  # a dead letter may be sent again
            self._done.add(seal)

    def _check_no_trace(self, side: Side, head: bytes, body: bytes, before: int) -> None:
        """Raise Broken if what was not accepted moved the ship, or has a result that is signed."""
        if side.flight.commands != before:
            raise Broken("what was not accepted reached the ship")
        for key, data in side.server.stored:
            with contextlib.suppress(NotGenuine):
                id = key.removeprefix(RESULT_PREFIX)
                self._ground.check_appended(data, place=f"result of {id}")
                if not any(s.encode() in head and one == body for s, one in self._genuine):
                    raise Broken(f"the worker signed a result for what nobody signed: {data!r}")

    def _run(self, side: Side, first: int, head: bytes, body: bytes) -> str | None:
        """Read one message, and run it if it is accepted. Return its seal then, None if not."""
        self._number += 1
        number = self._sides.index(side)
        decoder, acker = self._decoders[number], self._ackers[number]
        claim = Claim(
            tag=f"t{self._number}",
            queue=self._queue,
            level=2,
            id=f"{int(1e3 * side.clock.wall_s())}-{self._number}",
            fence=3 if first & COMES_AGAIN else 1,
        )
        try:
            limit_bytes = side.app.limit_bytes + HEAD_ROOM_BYTES
            fields = [HEAD, head, BODY, body]
            message: Any = open_message(claim, fields, head_limit_bytes=limit_bytes)
        except ValueError as error:
            decoder.reject_raw(head, self._queue.name, error)
            return None
        read = decoder.read(message, queue=self._queue.name)
        if not isinstance(read, tuple):
            return None
        parsed, task = read
        delivery = StreamsDelivery(claim=claim, acks=None)  # type: ignore[arg-type]
        job = Job(message=parsed, task=task, delivery=delivery)
        job.in_thread, job.call = here, ThreadCall()
        acker.ended.clear()
        drive(side.worker.runner.run(job))
        if not acker.ended:
            raise Broken(f"no end of {parsed.task}")
        return str(message.headers.get(SEAL))

    def probe(self, side: Side) -> None:
        message = TaskMessage(
            id="probe", task="blimp.ping", queue=self._queue.name, issued_ms=ISSUED_MS, ttl_s=5.0
        )
        packed = post(message, signer=self._ground if side.app.signer else None)
        self._run(side, 0, packed.head, packed.body)
        record = b"".join(one.record for one in self._ackers[self._sides.index(side)].ended)
        if b'"SUCCESS"' not in record:
            raise Broken(f"a ping is not answered: {record!r:.300}")


def _signed(head: bytes, body: bytes, *, signer: Signer, queue: str) -> bytes:
    """Return `head` with a good signature if it can have one."""
    try:
        document = msgspec.json.decode(head)
        headers = document["headers"]
        headers[SEAL] = signer.seal()
        headers[HEADER] = signer.sign(headers, body, queue=queue)
        return msgspec.json.encode(document)
    except (ValueError, TypeError, LookupError, RecursionError):
        return head


class Broadcast(Both):
    """The first byte also chooses emergency or remote control; two say the head's length."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners = []
        replies = KombuSender(MemoryBroker(), "memory://", timeout_s=1.0, on_lost=lambda _: None)
        self._entries = itertools.count(1)
        for side in self._sides:
            side.app.publisher._senders[URL] = replies
            listener: Any = side.broadcasts._listener(URL)
            listener._looked = True
            self._listeners.append(listener)
            side.remote.load()
        self._head = json.dumps(
            {
                "headers": {}, "properties": {"delivery_info": {}}, "kind": "bytes",
                "content-type": "application/json", "content-encoding": "utf-8",
            }
        ).encode()  # fmt: skip
        self._genuine: set[bytes] = set()  # bodies of seeds that were not yet read
        self._probes = 0
        self.seeds = list(self._make_seeds())

    def _make_seeds(self) -> list[bytes]:
        reply_to = {"exchange": "reply.celery.pidbox", "routing_key": "r"}
        bodies: tuple[tuple[int, dict[str, Any]], ...] = (
            (0, {"id": "b1", "name": "estop", "payload": {"source": "me"}}),
            (0, {"id": "b2", "name": "revoke", "payload": {"id": "x", "terminate": True}}),
            (0, {"id": "b3", "name": "blimp.wake", "payload": {}}),
            (IS_COMMAND, {"method": "ping", "arguments": {}, "ticket": "t", "pattern": "tw*",
                          "matcher": "glob", "reply_to": reply_to}),
            (IS_COMMAND, {"method": "rate_limit", "arguments": {"task_name": "blimp.ping",
                          "rate_limit": "1/s"}, "destination": ["twin"], "matcher": "pcre"}),
            (IS_COMMAND, {"method": "registered", "arguments": {"taskinfoitems": ["queue"]},
                          "app": "blimp.twin", "sent_s": SENT_S, "reply_to": reply_to}),
            (IS_COMMAND, {"method": "query_task", "arguments": {"ids": ["a", "b"]},
                          "reply_to": reply_to}),
            (IS_COMMAND, {"method": "shutdown", "arguments": None, "sent_s": SENT_S}),
            *((IS_COMMAND, {"method": name, "arguments": {}, "reply_to": reply_to})
              for name in ("stats", "conf", "active", "scheduled", "revoked", "clock")),
        )  # fmt: skip
        found = []
        for place, body in bodies:
            plain = json.dumps(body).encode()
            places = [place, place | HAS_KEY]
            if not place:
                signed = self._sign(plain)
                self._genuine.add(signed)
                found.append(self._input(HAS_KEY, signed))
                places.append(HAS_KEY | IS_SIGNED)
            found += [self._input(one, plain) for one in places]
        return found

    def _input(self, first: int, body: bytes) -> bytes:
        return bytes((first,)) + len(self._head).to_bytes(2, "big") + self._head + body

    def _sign(self, body: bytes) -> bytes:
        """Return an emergency broadcast sealed, dated and signed, if it can be."""
        try:
            document = json.loads(body)
            document |= {"seal": self._ground.seal(), "sent_s": SENT_S}
            place = f"blimp.{VEHICLE}.emergency"
            document["signature"] = self._ground.sign_document(document, place=place)
            return json.dumps(document).encode()
        except (ValueError, TypeError, AttributeError, RecursionError):
            return body

    def read(self, side: Side, first: int, head: bytes, body: bytes) -> None:
        if first & IS_COMMAND:
            self._command(side, head, body)
            return
        is_signed = bool(first & HAS_KEY and first & IS_SIGNED)
        before = side.flight.commands
        self._emergency(side, head, self._sign(body) if is_signed else body)
        if first & HAS_KEY and not is_signed and side.flight.commands != before:
            if body not in self._genuine:
                raise Broken("an emergency stop that nobody signed reached the ship")
            self._genuine.remove(body)

    def _emergency(self, side: Side, head: bytes, body: bytes) -> None:
        self._deliver(side, [self._entry(side, head, body)], [])

    def _command(self, side: Side, head: bytes, body: bytes) -> None:
        remote = side.remote
        # Nothing is in a queue: it is run here, where it would be put for its thread.
        remote._thread = self  # type: ignore[assignment]
        self._deliver(side, [], [self._entry(side, head, body)])
        while remote._waiting:
            found = remote._next()
            assert found is not None
            remote.load().handle(found)

    def _entry(self, side: Side, head: bytes, body: bytes) -> tuple[bytes, list[bytes]]:
        id = b"%d-%d" % (int(1e3 * side.clock.wall_s()), next(self._entries))
        return id, [HEAD, head, BODY, body]

    def _deliver(self, side: Side, emergencies: list[Any], commands: list[Any]) -> None:
        self._listeners[self._sides.index(side)]._take_kept([emergencies, commands])

    def probe(self, side: Side) -> None:
        self._probes += 1
        id = f"probe-{self._probes}"
        body = json.dumps({"id": id, "name": "estop", "payload": {"source": "me"}}).encode()
        before = side.flight.commands
        self._emergency(side, self._head, self._sign(body) if side.app.signer else body)
        stored = side.server.results.get(RESULT_PREFIX + id, b"")
        if side.flight.commands != before + 1 or b'"SUCCESS"' not in stored:
            raise Broken(f"an emergency stop is not confirmed: {stored!r:.300}")
        options = [str(task.options.rate_limit) for task in side.app.tasks.values()]
        if set(options) != {"None"} or side.worker.queues != (f"blimp.{VEHICLE}",):
            raise Broken("a command that must be signed was obeyed")
