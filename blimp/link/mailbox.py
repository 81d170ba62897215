"""The one place where queue time and flight time meet.

Unix datagrams, one JSON message each: commands and greetings go to the flight process,
outcomes and snapshots come back. Datagrams on a Unix socket arrive whole and in order. A full
receiver loses the newest datagram instead of blocking the sender, so neither side ever waits
for the other. A lost command is sent again with the same id until its outcome is known; the
flight process remembers outcomes by id.

    worker                                   flight process
    MailboxClient ── estop ────────────────▶ MailboxServer.emergencies()
                  ── Command, Hello,
                     Heartbeat ────────────▶ .receive(), .heartbeats()
    supervisor    ── Happening ────────────▶
    worker        ◀── Outcome, Snapshot,
                      Happening ──────────── .post(), .publish()

An emergency stop has a socket of its own, so that no flood of commands keeps it out. Only an
emergency stop is read there: if that socket is full of them, one more is not needed.

Who may command is decided in one place, by the permissions of the flight process's two sockets and
of their directory. A client that asks as root or as a member of the group has no file there: see
`blimp/link/sender.py`.
"""

import contextlib
import os
import socket
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import ConfigError, MailboxError
from blimp.link.paths import (
    MAX_SOCKET_PATH_BYTES,
    emergency_socket,
    identity,
    is_of_group,
    make_directory,
)
from blimp.link.sender import Sender, receive, with_socket
from blimp.link.timeline import KEPT, KINDS, Backlog, Happening, Timeline
from blimp.nesting import shallow
from blimp.types import Command, Heartbeat, Outcome, OutcomeState, Snapshot

MAX_DATAGRAM_BYTES = 65_536
MAX_COMMAND_BYTES = 4096  # an outcome quotes its command: quoted and escaped it must still fit
MAX_PER_RECEIVE = 32  # the loop's share of work for one cycle, whatever floods the socket
MAX_EMERGENCIES = 1024  # all that waits there: twice what systemd has the kernel queue
EMERGENCY_ROOM_S = 0.2  # how long an emergency stop waits for room among others
MAX_AHEAD_S = 0.1  # tolerance: both ends read the same monotonic clock
MAX_SUBSCRIBERS = 8
SUBSCRIPTION_S = 3.0
MAX_REASON_LETTERS = 200
SENT_AT_ONCE = 8  # happenings, to one subscriber with each snapshot

REMEMBERED_OUTCOMES = 512


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A client's greeting: keeps its subscription, and says whether its broker answers.

    deaf: of a client that hears emergency stops, why one would not reach it, "" if it would; None
    of any other client.
    """

    link: bool
    deaf: str | None = None


Timed = TypeVar("Timed", Command, Heartbeat)

_to_flight = msgspec.json.Decoder(Command | Heartbeat | Hello | Happening)
_to_worker = msgspec.json.Decoder(Outcome | Snapshot | Happening)
_encoder = msgspec.json.Encoder()


class MailboxServer(Closing):
    """The flight process's end. No method waits.

    Use as a context manager. Raises MailboxError if the socket cannot be bound, or if
    another flight process answers there: a bus has one owner.
    """

    def __init__(self, *, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._path, self._emergency_path = path, emergency_socket(path)
        self._mode = 0o660 if is_of_group(path.parent) else 0o600
        self._socket = _bind(self._path, mode=self._mode)
        try:
            self._emergency = _bind(self._emergency_path, mode=self._mode)
        except MailboxError:
            _close(self._socket, self._path)
            raise
        self._files = {one: identity(one) for one in (self._path, self._emergency_path)}
        self._left: list[socket.socket] = []  # sockets without a file: the loop may still read one
        self._subscribers: dict[
            int | str, tuple[Sender, float]
        ] = {}  # with its last datagram's time
        self._link_s: float | None = None
        self._hearing: dict[int | str, tuple[str, float]] = {}  # why deaf, and when that was said
        self._heartbeats: list[Heartbeat] = []
        self._started_s = clock.now_s()
        self.tap: Callable[[bytes], object] | None = None  # has a copy of each message; never waits
        self.timeline: Timeline | None = None  # writes what passes into the record
        self._backlog = Backlog()
        self.malformed = 0
        self.last_malformed = ""

    def renew(self) -> bool:
        """Bind a socket again whose file somebody has removed; return whether one was bound.

        Without its file nobody reaches the ship, not even a stop. For a thread beside the loop's:
        files are no matter of the loop, which reads the new sockets from its next cycle on.
        """
        gone = [path for path, file in self._files.items() if identity(path) != file]
        for path in gone:
            try:
                make_directory(path.parent)
                bound = _bind(path, mode=self._mode)
            except (ConfigError, MailboxError):
                return False
            self._files[path] = identity(path)
            if path == self._path:
                self._socket, bound = bound, self._socket
            else:
                self._emergency, bound = bound, self._emergency
            self._left.append(bound)
        return bool(gone)

    def emergencies(self) -> list[Command]:
        """Return every emergency stop that waits; count everything else as malformed."""
        stops: list[Command] = []
        for message, sender in self._read(self._emergency, MAX_EMERGENCIES):
            if isinstance(message, Command) and message.name == "estop":
                self._subscribe(sender, self._clock.now_s(), is_urgent=True)
                stops.append(self._timed(message))
            else:
                self._malformed("emergency socket: not an emergency stop")
        return stops

    def receive(self) -> list[Command]:
        """Return the commands that have arrived; note greetings; count what is malformed."""
        commands: list[Command] = []
        now_s = self._clock.now_s()
        for message, sender in self._read(self._socket, MAX_PER_RECEIVE):
            self._subscribe(sender, now_s)
            if isinstance(message, Command):
                commands.append(self._timed(message))
            elif isinstance(message, Heartbeat):
                self._heartbeats.append(self._timed(message))
            elif isinstance(message, Happening):
                self._heard(message, now_s)
            else:
                self._greeted(message, sender, now_s)
        return commands

    def _greeted(self, hello: Hello, sender: Sender, now_s: float) -> None:
        """Note a greeting. A link on which no emergency stop would come is a lost one."""
        if hello.deaf is not None and sender.key is not None:
            self._hearing[sender.key] = (hello.deaf[:MAX_REASON_LETTERS], now_s)
            while len(self._hearing) > MAX_SUBSCRIBERS:
                del self._hearing[min(self._hearing, key=lambda one: self._hearing[one][1])]
        hears = any(not why for why, heard_s in self._hearing.values() if _is_near(heard_s, now_s))
        if hello.link and (hears or not hello.deaf):
            self._link_s = now_s

    def _heard(self, happening: Happening, now_s: float) -> None:
        """Take into the record what the supervisor says of other processes."""
        if happening.by != "supervisor" or happening.kind not in KINDS:
            self._malformed("happening: not of a supervisor")
        elif not happening.t_s <= now_s + MAX_AHEAD_S:
            self._malformed(f"happening at {happening.t_s} s: it is {now_s:.1f} s now")
        else:
            self._tell(happening)

    def _record(self, message: Command | Outcome | Snapshot) -> None:
        """Write into the record what a message that passes adds to it."""
        if self.timeline is not None:
            for happening in self.timeline.take(message, self._clock.now_s()):
                self._tell(happening)

    def _tell(self, happening: Happening) -> None:
        data = _encoder.encode(happening)
        if self.tap is not None:
            self.tap(data)
        self._backlog.add(data)

    def _catch_up(self) -> None:
        """Send each subscriber what it misses of the record: none is lost while it is busy."""
        for key, (sender, _) in self._subscribers.items():
            for data in self._backlog.missing(key, most=SENT_AT_ONCE):
                try:
                    sender.send(data)
                except OSError:  # its queue is full, or it has ended: `_send` finds out
                    break
                self._backlog.had(key)

    def deaf(self, now_s: float) -> str:
        """Return why an emergency stop would not come by one of those that hear them, or ""."""
        return "; ".join(
            why for why, at_s in self._hearing.values() if why and _is_near(at_s, now_s)
        )

    def heartbeats(self) -> list[Heartbeat]:
        """Return the pilots' heartbeats among what `receive` has read."""
        heartbeats, self._heartbeats = self._heartbeats, []
        return heartbeats

    def _read(
        self, channel: socket.socket, limit: int
    ) -> Iterator[tuple[Command | Heartbeat | Hello | Happening, Sender]]:
        """Yield up to `limit` messages that wait in `channel`, each with its sender."""
        for _ in range(limit):
            try:
                data, sender = receive(channel, MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            try:
                if len(data) > MAX_COMMAND_BYTES:
                    raise msgspec.DecodeError(f"the limit is {MAX_COMMAND_BYTES} bytes")
                message = _to_flight.decode(shallow(data))
                if isinstance(message, Command):
                    if self.tap is not None:
                        self.tap(data)
                    self._record(message)
                yield message, sender
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._malformed(f"mailbox datagram of {len(data)} bytes: {error}")
            finally:
                kept = self._subscribers.get(sender.key or "")
                if kept is None or kept[0] is not sender:
                    sender.close()

    def _malformed(self, why: str) -> None:
        self.malformed += 1
        self.last_malformed = why

    def post(self, outcome: Outcome) -> None:
        """Send an outcome to every subscriber; the one that waits for its id uses it."""
        self._send(_encoder.encode(outcome))
        self._record(outcome)

    def publish(self, snapshot: Snapshot) -> None:
        """Send a snapshot to every subscriber; a slow one misses it."""
        self._send(_encoder.encode(snapshot))
        self._record(snapshot)
        self._catch_up()

    def link_age_s(self, now_s: float) -> float:
        """Return how long ago a client last proved that its broker answers.

        Counts from the start of the process if none has yet.
        """
        return now_s - (self._started_s if self._link_s is None else self._link_s)

    def _timed(self, message: Timed) -> Timed:
        """Return `message` with how long it has waited, whatever it says of that itself."""
        if message.sent_s is None or message.sent_s < self._started_s:
            waited_s = inf  # sent before this process started: nothing is known about its wait
        else:
            waited_s = self._clock.now_s() - message.sent_s
            waited_s = max(0.0, waited_s) if waited_s >= -MAX_AHEAD_S else inf
        return structs.replace(message, waited_s=waited_s)

    def _subscribe(self, sender: Sender, now_s: float, *, is_urgent: bool = False) -> None:
        """Send to `sender` from now on, if there is room; `is_urgent`: make room."""
        subscribers, key = self._subscribers, sender.key
        if key is None:
            return
        known = subscribers.get(key)
        if known is not None:
            subscribers[key] = (known[0], now_s)
            return
        if is_urgent and len(subscribers) >= MAX_SUBSCRIBERS:
            # Last of all a client with a name: no press of many leaves the worker without answers.
            self._forget(min(subscribers, key=lambda one: (type(one) is str, subscribers[one][1])))
        if len(subscribers) < MAX_SUBSCRIBERS:
            subscribers[key] = (sender, now_s)

    def _forget(self, key: int | str) -> None:
        sender, _ = self._subscribers.pop(key)
        self._backlog.forget(key)
        sender.close()

    def _send(self, data: bytes) -> None:
        if self.tap is not None:
            self.tap(data)
        now_s = self._clock.now_s()
        for key, (sender, heard_s) in list(self._subscribers.items()):
            if now_s - heard_s > SUBSCRIPTION_S:
                self._forget(key)
                continue
            try:
                sender.send(data)
            except BlockingIOError:
                pass  # its queue is full: it misses this one; for an outcome it asks again
            except OSError:
                self._forget(key)  # its process has ended; a new one greets first

    def close(self) -> None:
        for key in list(self._subscribers):
            self._forget(key)
        for left in self._left:
            left.close()
        _close(self._socket, self._path)
        _close(self._emergency, self._emergency_path)


class MailboxClient(Closing):
    """The end of a worker, shared by all its task threads, or of a program that asks.

    server_path: the flight process's socket. It may come and go; a client outlives it.
    path: this client's own socket; one fixed name per role, so that a restarted worker
    takes the place of a killed one and leaves no file behind. None for a program that asks: it
    needs no right but to send to the flight process, as root and members of its group may.
    """

    def __init__(self, *, server_path: Path, clock: Clock, path: Path | None = None) -> None:
        self._server = str(server_path)
        self._emergency = str(emergency_socket(server_path))
        self._clock = clock
        self._path = path
        self._passed: socket.socket | None = None
        if path is None:
            self._socket = _with_room(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            self._answers, self._passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        else:
            self._socket = self._answers = _with_room(_bind(path, mode=0o600))
            self._file = identity(path)
        self._extras = [] if self._passed is None else with_socket(self._passed)
        self._changed = threading.Condition()
        self._outcomes: OrderedDict[str, tuple[int, Outcome]] = OrderedDict()
        self._returned: dict[str, int] = {}  # the sequence that a caller has had, by id
        self._snapshot: Snapshot | None = None
        self._snapshot_s = 0.0
        self._happenings: deque[Happening] = deque(maxlen=2 * KEPT)
        self._closed = False
        self._thread = threading.Thread(target=self._receive, name="mailbox", daemon=True)
        self._thread.start()

    def call(self, command: Command, *, timeout_s: float) -> Outcome | None:
        """Send `command` and return its outcome so far; None when nothing answers in time.

        A command that does not say when it is sent is sent now.
        Safe to repeat with the same command: the flight process answers a known id with
        the outcome it has and moves nothing. Raises MailboxError for a command that no
        datagram can carry.
        """
        if command.sent_s is None:
            command = structs.replace(command, sent_s=self._clock.now_s())
        data = _encode_command(command)
        with self._changed:
            seen = self._sequence(command.id)
        if command.name == "estop":
            sent = self._send(data, to=self._emergency, waits=True)
        else:
            sent = self._send(data)
        return self._wait(command.id, seen=seen, timeout_s=timeout_s) if sent else None

    def wait(self, id: str, *, timeout_s: float) -> Outcome | None:
        """Return the next outcome of command `id` that was not returned yet.

        At once when it has come meanwhile, or the command's end is known; None when nothing
        comes in time. Progress may be skipped; a final outcome is not.
        """
        with self._changed:
            known = self._outcomes.get(id)
            if known is not None and known[1].state is not OutcomeState.IN_PROGRESS:
                return known[1]
            seen = self._returned.get(id, 0)
        return self._wait(id, seen=seen, timeout_s=timeout_s)

    def greet(self, *, link: bool, deaf: str | None = None) -> bool:
        """Keep the subscription; `link` says whether the broker answered just now.

        deaf: see Hello.

        Returns whether the flight process is there to receive it.
        """
        self._renew()
        return self._send(_encoder.encode(Hello(link=link, deaf=deaf)))

    def relay(self, heartbeat: Heartbeat) -> bool:
        """Pass on a pilot's heartbeat; return whether the flight process is there to receive it.

        It waits for room, as an emergency stop: no other one makes up for a goodbye.
        """
        sent_s = self._clock.now_s() - heartbeat.waited_s  # -inf is sent as None: not known
        data = _encoder.encode(structs.replace(heartbeat, sent_s=sent_s, waited_s=0.0))
        return self._send(data, waits=True)

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, None before the first."""
        with self._changed:
            return self._snapshot

    def snapshot_age_s(self) -> float | None:
        """Return how long ago the newest snapshot arrived, None before the first."""
        with self._changed:
            return None if self._snapshot is None else self._clock.now_s() - self._snapshot_s

    def next_snapshot(
        self, before: Snapshot | None, *, timeout_s: float
    ) -> tuple[Snapshot, float] | None:
        """Return the newest snapshot and its age, as soon as it is another one than `before`.

        None if none comes in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._snapshot is not before, timeout=timeout_s
            )
            if self._snapshot is None or self._snapshot is before:
                return None
            return self._snapshot, self._clock.now_s() - self._snapshot_s

    def happenings(self) -> list[Happening]:
        """Return what has come of the record since the last call; some of it perhaps again."""
        with self._changed:
            found = list(self._happenings)
            self._happenings.clear()
        return found

    @property
    def boot_id(self) -> str:
        """The boot id in the newest snapshot, "" before the first."""
        snapshot = self.snapshot()
        return snapshot.boot_id if snapshot else ""

    def _sequence(self, id: str) -> int:
        known = self._outcomes.get(id)
        return known[0] if known else 0

    def _wait(self, id: str, *, seen: int, timeout_s: float) -> Outcome | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._sequence(id) > seen, timeout=timeout_s
            )
            known = self._outcomes.get(id)
            if known is None or known[0] <= seen:
                return None
            self._returned[id] = known[0]
            return known[1]

    def _send(self, data: bytes, *, to: str = "", waits: bool = False) -> bool:
        """Send `data` to the flight process; `waits` for room, which the kernel gives in turn."""
        flags = 0 if waits else socket.MSG_DONTWAIT
        try:
            self._socket.sendmsg([data], self._extras, flags, to or self._server)
        except OSError:
            return False  # absent, restarting or its queue is full: the caller sends it again
        return True

    def _renew(self) -> None:
        """Bind this client's socket again if its file was removed: no answer would come."""
        if self._path is None or self._closed or identity(self._path) == self._file:
            return
        with contextlib.suppress(ConfigError, MailboxError):  # tried with the next greeting
            make_directory(self._path.parent)
            bound = _with_room(_bind(self._path, mode=0o600))
            self._file = identity(self._path)
            left, self._socket, self._answers = self._answers, bound, bound
            with contextlib.suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)  # wakes the receiving thread
            left.close()

    def _receive(self) -> None:
        while not self._closed:
            answers = self._answers
            try:
                data = answers.recv(MAX_DATAGRAM_BYTES)
            except OSError:
                if answers is self._answers:
                    return
                continue  # renewed
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._take(_to_worker.decode(data))

    def _take(self, message: Outcome | Snapshot | Happening) -> None:
        with self._changed:
            if isinstance(message, Happening):
                self._happenings.append(message)
            elif isinstance(message, Snapshot):
                self._snapshot = message
                self._snapshot_s = self._clock.now_s()
            else:
                self._outcomes[message.id] = (self._sequence(message.id) + 1, message)
                self._outcomes.move_to_end(message.id)
                while len(self._outcomes) > REMEMBERED_OUTCOMES:
                    forgotten, _ = self._outcomes.popitem(last=False)
                    self._returned.pop(forgotten, None)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._answers.shutdown(socket.SHUT_RDWR)  # wakes the receiving thread
        self._thread.join(timeout=1.0)
        if self._path is not None:
            _close(self._socket, self._path)
        for one in (self._socket, self._answers, self._passed):
            if one is not None:
                one.close()


def _is_near(at_s: float, now_s: float) -> bool:
    return now_s - at_s <= SUBSCRIPTION_S


def _with_room(channel: socket.socket) -> socket.socket:
    """Have `channel` wait for room, but not for long."""
    channel.setblocking(True)
    room = struct.pack("ll", 0, int(EMERGENCY_ROOM_S * 1e6))
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, room)
    return channel


def _encode_command(command: Command) -> bytes:
    try:
        data = _encoder.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MailboxError(f"command {command.name!r:.80} cannot be sent: {error}") from error
    if len(data) > MAX_COMMAND_BYTES:
        raise MailboxError(
            f"command {command.name!r:.80} has {len(data)} bytes: the limit is {MAX_COMMAND_BYTES}"
        )
    return data


def _bind(path: Path, *, mode: int) -> socket.socket:
    """Bind a datagram socket at `path`; replaces a dead process's."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise MailboxError(
            f"mailbox socket {path}: {len(os.fsencode(path))} bytes, "
            f"the kernel's limit is {MAX_SOCKET_PATH_BYTES}: use a shorter --runtime-dir"
        )
    try:
        is_taken = is_served(path)
    except MailboxError:
        is_taken = (
            False  # what another user has left in this one's directory keeps no ship from starting
        )
    if is_taken:
        raise MailboxError(f"mailbox socket {path}: another process serves it; end that first")
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        path.unlink(missing_ok=True)
        channel.bind(str(path))
        path.chmod(mode)
        channel.setblocking(False)
    except OSError as error:
        channel.close()
        raise MailboxError(f"mailbox socket {path}: {error}") from error
    return channel


def is_served(path: Path) -> bool:
    """Say whether a live process has `path` bound: the socket of a killed one refuses.

    Raises MailboxError if this user may not know.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except PermissionError as error:
            cure = "be root, or in the group of its directory"
            raise MailboxError(f"mailbox socket {path}: {error.strerror}: {cure}") from error
        except OSError as error:
            raise MailboxError(f"mailbox socket {path}: {error.strerror}") from error
    return True


def _close(channel: socket.socket, path: Path) -> None:
    """Remove the file, then close: the name is ours only while the socket is open. Idempotent."""
    if channel.fileno() == -1:
        return
    path.unlink(missing_ok=True)
    channel.close()
