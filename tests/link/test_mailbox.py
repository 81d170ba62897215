"""The mailbox: what crosses, what is lost and asked again, what is refused."""

import contextlib
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from blimp.clock import ManualClock
from blimp.errors import MailboxError
from blimp.link.mailbox import (
    MAX_COMMAND_BYTES,
    MAX_PER_RECEIVE,
    MAX_SUBSCRIBERS,
    SUBSCRIPTION_S,
    MailboxClient,
    MailboxServer,
)
from blimp.types import Command, Outcome, OutcomeState
from tests.snapshot import SNAPSHOT


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[MailboxServer]:
    with MailboxServer(path=tmp_path / "flight.sock", clock=clock) as server:
        yield server


@pytest.fixture
def client(tmp_path: Path, clock: ManualClock) -> Iterator[MailboxClient]:
    with MailboxClient(
        server_path=tmp_path / "flight.sock", path=tmp_path / "worker.sock", clock=clock
    ) as client:
        yield client


class Answering:
    """A flight process in small: answers each command from a thread until it is stopped."""

    def __init__(self, server: MailboxServer, *states: OutcomeState) -> None:
        self._server = server
        self._states = states
        self._stop = threading.Event()
        self.received: list[Command] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Answering":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            for command in (*self._server.emergencies(), *self._server.receive()):
                self.received.append(command)
                for state in self._states:
                    self._server.post(Outcome(id=command.id, state=state))


def test_a_command_arrives_whole_and_its_outcome_comes_back(
    server: MailboxServer, client: MailboxClient
) -> None:
    command = Command(id="1", name="goto", arguments={"north_m": -3.5}, fence=2, ttl_s=5.0)
    with Answering(server, OutcomeState.DONE) as flight:
        outcome = client.call(command, timeout_s=5.0)
    assert flight.received == [structs.replace(command, sent_s=0.0)]
    assert outcome == Outcome(id="1", state=OutcomeState.DONE)


def test_the_time_that_a_command_waits_to_be_received_is_reported(
    server: MailboxServer, client: MailboxClient, clock: ManualClock
) -> None:
    clock.advance(5.0)
    client.call(Command(id="1", name="arm", age_s=0.1, ttl_s=5.0), timeout_s=0.0)
    client.call(Command(id="2", name="arm", age_s=0.1, sent_s=3.0), timeout_s=0.0)
    clock.advance(1.5)  # the flight process stands still
    waited = {command.id: command.waited_s for command in server.receive()}
    assert waited == {"1": 1.5, "2": 3.5}


def test_what_was_sent_before_the_receiver_began_is_of_any_age(
    tmp_path: Path, client: MailboxClient, clock: ManualClock
) -> None:
    """A worker that slept over a restart: who has control now, its command does not know."""
    clock.advance(5.0)
    with MailboxServer(path=tmp_path / "flight.sock", clock=clock) as successor:
        client.call(Command(id="1", name="arm", ttl_s=5.0, sent_s=4.9), timeout_s=0.0)
        client.call(Command(id="2", name="arm", ttl_s=5.0), timeout_s=0.0)
        assert [command.waited_s for command in successor.receive()] == [inf, 0.0]


@pytest.mark.parametrize("sent", ["", ',"sent_s":60.0', ',"sent_s":60.0,"waited_s":0.0'])
def test_a_command_that_does_not_say_when_it_was_sent_is_of_any_age(
    server: MailboxServer, tmp_path: Path, sent: str
) -> None:
    text = f'{{"type":"command","id":"1","name":"arm","ttl_s":5.0{sent}}}'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(text.encode(), str(tmp_path / "flight.sock"))
    (command,) = server.receive()
    assert command.waited_s == inf


def test_a_final_outcome_is_never_missed_by_a_late_waiter(
    server: MailboxServer, client: MailboxClient
) -> None:
    with Answering(server, OutcomeState.IN_PROGRESS, OutcomeState.DONE):
        client.call(Command(id="1", name="goto"), timeout_s=5.0)
        client.call(Command(id="2", name="ping"), timeout_s=5.0)  # by now 1 is final
        late = client.wait("1", timeout_s=0.0)
    assert late is not None
    assert late.state is OutcomeState.DONE


def test_progress_that_came_between_two_waits_is_returned_by_the_second(
    server: MailboxServer, client: MailboxClient
) -> None:
    with Answering(server, OutcomeState.IN_PROGRESS):
        client.call(Command(id="1", name="goto"), timeout_s=5.0)
        server.post(Outcome(id="1", state=OutcomeState.IN_PROGRESS, fraction=0.8))
        client.call(Command(id="2", name="ping"), timeout_s=5.0)  # by now it has come
    between = client.wait("1", timeout_s=0.0)
    assert between is not None
    assert between.fraction == 0.8
    assert client.wait("1", timeout_s=0.0) is None  # once


def test_silence_is_none_not_an_error(tmp_path: Path, clock: ManualClock) -> None:
    with MailboxClient(
        server_path=tmp_path / "absent.sock", path=tmp_path / "worker.sock", clock=clock
    ) as client:
        assert client.call(Command(id="1", name="ping"), timeout_s=0.0) is None
        assert not client.greet(link=True)


def test_snapshots_reach_those_who_greeted_and_carry_the_boot_id(
    server: MailboxServer, client: MailboxClient
) -> None:
    assert client.boot_id == ""
    client.greet(link=False)
    server.receive()
    assert client.next_snapshot(None, timeout_s=0.0) is None
    server.publish(SNAPSHOT)
    found = client.next_snapshot(None, timeout_s=20.0)
    assert found == (SNAPSHOT, 0.0)
    assert client.next_snapshot(found[0], timeout_s=0.0) is None
    server.post(Outcome(id="after", state=OutcomeState.DONE))  # arrives behind the snapshot
    assert client.wait("after", timeout_s=5.0) is not None
    assert client.snapshot() == SNAPSHOT
    assert client.boot_id == "boot-1"


def test_only_a_greeting_with_a_live_broker_proves_the_link(
    server: MailboxServer, client: MailboxClient, clock: ManualClock
) -> None:
    clock.advance(4.0)
    client.greet(link=False)
    server.receive()
    assert server.link_age_s(clock.now_s()) == 4.0
    client.greet(link=True)
    server.receive()
    assert server.link_age_s(clock.now_s()) == 0.0


def test_a_link_on_which_no_stop_would_come_is_a_lost_one(
    server: MailboxServer, client: MailboxClient, clock: ManualClock, tmp_path: Path
) -> None:
    clock.advance(4.0)
    client.greet(link=True, deaf="twin hears no broadcast")
    server.receive()
    assert server.link_age_s(clock.now_s()) == 4.0
    assert server.deaf(clock.now_s()) == "twin hears no broadcast"
    with MailboxClient(server_path=tmp_path / "flight.sock", clock=clock) as relay:
        relay.greet(link=False, deaf="")
        client.greet(link=True, deaf="twin hears no broadcast")
        server.receive()
    assert server.link_age_s(clock.now_s()) == 0.0  # the relay passes a stop on
    assert server.deaf(clock.now_s()) == "twin hears no broadcast"
    client.greet(link=True, deaf="")
    server.receive()
    assert server.deaf(clock.now_s()) == ""


def test_a_client_that_no_longer_greets_is_not_asked_whether_it_hears(
    server: MailboxServer, client: MailboxClient, clock: ManualClock
) -> None:
    """Without it the link is lost by itself."""
    client.greet(link=True, deaf="twin hears no broadcast")
    server.receive()
    clock.advance(SUBSCRIPTION_S + 0.1)
    assert server.deaf(clock.now_s()) == ""
    client.greet(link=False)  # as `blimp doctor` does
    server.receive()
    assert server.deaf(clock.now_s()) == ""


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"null", b"[]", b'{"type":"snapshot"}', b'{"type":"command","id":1}',
     b'{"type":"command","id":"1","name":"goto","fence":1e999}', b"{" * 60_000,
     b'{"type":"command","id":"1","name":"x","arguments":{"a":' + b"[" * 5000 + b"]" * 5000,
     msgspec.json.encode(Command(id="1", name="x" * MAX_COMMAND_BYTES))],
)  # fmt: skip
def test_garbage_is_counted_and_moves_nothing(
    server: MailboxServer, tmp_path: Path, data: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(data, str(tmp_path / "flight.sock"))
    assert server.receive() == []
    assert server.malformed == 1
    assert str(len(data)) in server.last_malformed


def test_a_flood_costs_the_loop_a_bounded_share_of_one_cycle(
    server: MailboxServer, tmp_path: Path
) -> None:
    sent = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the kernel's queue for one receiver
            while sent < 10 * MAX_PER_RECEIVE:
                text = f'{{"type":"command","id":"{sent}","name":"ping"}}'
                stranger.sendto(text.encode(), str(tmp_path / "flight.sock"))
                sent += 1
    received = []
    while commands := server.receive():
        assert len(commands) <= MAX_PER_RECEIVE
        received += commands
    assert [command.id for command in received] == [str(n) for n in range(sent)]


@contextlib.contextmanager
def flooding(path: Path, datagram: bytes) -> Iterator[None]:
    """Keep the queue of the socket at `path` full from a second program."""
    stop = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.05)
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    stranger.sendto(datagram, str(path))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_an_emergency_stop_passes_a_mailbox_that_is_full(
    tmp_path: Path, server: MailboxServer, client: MailboxClient
) -> None:
    while server_has_room(tmp_path / "flight.sock"):
        pass
    client.call(Command(id="stop", name="estop"), timeout_s=0.0)
    assert [command.id for command in server.emergencies()] == ["stop"]
    with flooding(tmp_path / "flight.sock", b'{"type":"hello","link":true}'):
        with Answering(server, OutcomeState.DONE) as flight:
            for number in range(20):
                stop = Command(id=f"stop-{number}", name="estop")
                assert client.call(stop, timeout_s=10.0) is not None
        assert [command.id for command in flight.received] == [f"stop-{n}" for n in range(20)]


@pytest.mark.parametrize(
    "datagram",
    [b"garbage", b'{"type":"hello","link":true}', b'{"type":"command","id":"x","name":"arm"}'],
)
def test_nothing_but_an_emergency_stop_comes_through_its_socket(
    tmp_path: Path, server: MailboxServer, client: MailboxClient, datagram: bytes
) -> None:
    """Not even a flood of what a stranger writes there keeps one out."""
    with (
        flooding(tmp_path / "estop.sock", datagram),
        Answering(server, OutcomeState.DONE) as flight,
    ):
        for number in range(20):
            stop = Command(id=f"stop-{number}", name="estop")
            assert client.call(stop, timeout_s=10.0) is not None
    assert {command.name for command in flight.received} == {"estop"}
    assert server.malformed > 0
    assert server.link_age_s(5.0) == 5.0


def test_an_emergency_stop_that_waits_is_read_though_its_socket_is_full_of_them(
    tmp_path: Path, server: MailboxServer, client: MailboxClient
) -> None:
    """While the flight process is stopped, each confirmation is asked for again and again."""
    for number in range(2000):
        client.call(Command(id=f"stop-{number}", name="estop"), timeout_s=0.0)
        if number > 5 and not server_has_room(tmp_path / "estop.sock"):
            break
    waiting = server.emergencies()
    assert waiting[0].id == "stop-0"
    assert len(waiting) > 5
    assert server.emergencies() == []


def server_has_room(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.sendto(b"", str(path))
        except BlockingIOError:
            return False
    return True


def test_the_sender_of_an_emergency_stop_is_answered_though_eight_others_subscribe(
    tmp_path: Path, server: MailboxServer, client: MailboxClient
) -> None:
    with contextlib.ExitStack() as strangers:
        for number in range(MAX_SUBSCRIBERS + 4):
            stranger = strangers.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            stranger.bind(str(tmp_path / f"stranger-{number}"))
            stranger.sendto(b'{"type":"hello","link":false}', str(tmp_path / "flight.sock"))
            server.receive()  # without systemd a socket holds 10 datagrams, and an 11th blocks
        with Answering(server, OutcomeState.DONE):
            assert client.call(Command(id="stop", name="estop"), timeout_s=10.0) is not None


def test_many_stops_of_this_machine_do_not_leave_the_worker_without_answers(
    tmp_path: Path, clock: ManualClock, server: MailboxServer, client: MailboxClient
) -> None:
    assert client.greet(link=True)
    server.receive()
    with contextlib.ExitStack() as pressers:
        for number in range(MAX_SUBSCRIBERS + 2):
            presser = MailboxClient(server_path=tmp_path / "flight.sock", clock=clock)
            pressers.enter_context(presser)
            presser.call(Command(id=str(number), name="estop"), timeout_s=0.0)
            assert len(server.emergencies()) == 1
        server.post(Outcome(id="mine", state=OutcomeState.DONE))
        assert client.wait("mine", timeout_s=5.0) is not None


def test_a_successor_takes_the_place_of_a_killed_client(
    server: MailboxServer, tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "worker.sock").touch()  # what kill -9 leaves behind
    with (
        MailboxClient(
            server_path=tmp_path / "flight.sock", path=tmp_path / "worker.sock", clock=clock
        ) as client,
        Answering(server, OutcomeState.DONE),
    ):
        assert client.call(Command(id="1", name="ping"), timeout_s=5.0) is not None
    assert not (tmp_path / "worker.sock").exists()


def test_a_second_flight_process_is_refused_and_leaves_the_first_alone(
    server: MailboxServer, client: MailboxClient, tmp_path: Path, clock: ManualClock
) -> None:
    with pytest.raises(MailboxError, match=r"flight\.sock: another process serves it"):
        MailboxServer(path=tmp_path / "flight.sock", clock=clock)
    with Answering(server, OutcomeState.DONE):
        assert client.call(Command(id="1", name="ping"), timeout_s=5.0) is not None


def test_sockets_whose_files_were_removed_are_bound_again(
    server: MailboxServer, client: MailboxClient, tmp_path: Path
) -> None:
    """Else no command and no stop would reach the ship until it lands for its lost link."""
    assert not server.renew()
    for path in tmp_path.iterdir():
        path.unlink()
    with Answering(server, OutcomeState.DONE) as flight:
        assert client.call(Command(id="1", name="estop"), timeout_s=0.1) is None
        assert server.renew()
        assert client.greet(link=True)
        for name in ("estop", "ping"):
            assert client.call(Command(id=f"2 {name}", name=name), timeout_s=20.0) is not None
        assert not server.renew()
    assert [command.name for command in flight.received] == ["estop", "ping"]
    shutil.rmtree(tmp_path)
    assert server.renew()
    with Answering(server, OutcomeState.DONE):
        assert client.greet(link=True)
        assert client.call(Command(id="3", name="ping"), timeout_s=20.0) is not None
    server.close()
    client.close()
    assert not list(tmp_path.iterdir())


def test_closing_leaves_a_successors_socket_alone(tmp_path: Path, clock: ManualClock) -> None:
    first = MailboxServer(path=tmp_path / "flight.sock", clock=clock)
    first.close()
    with MailboxServer(path=tmp_path / "flight.sock", clock=clock):
        first.close()
        assert (tmp_path / "flight.sock").exists()


def test_a_program_that_asks_needs_no_file_and_leaves_none(
    server: MailboxServer, tmp_path: Path, clock: ManualClock
) -> None:
    before = set(tmp_path.iterdir())
    with MailboxClient(server_path=tmp_path / "flight.sock", clock=clock) as asking:
        assert set(tmp_path.iterdir()) == before
        with Answering(server, OutcomeState.DONE):
            for name in ("hold", "estop"):
                outcome = asking.call(Command(id=name, name=name), timeout_s=5.0)
                assert outcome is not None
                assert outcome.state is OutcomeState.DONE
    server.publish(SNAPSHOT)  # into a socket whose other end has ended
    assert set(tmp_path.iterdir()) == before


def test_one_that_asks_again_and_again_is_one_subscriber_and_costs_one_descriptor(
    server: MailboxServer, tmp_path: Path, clock: ManualClock
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(MailboxClient(server_path=tmp_path / "flight.sock", clock=clock))
            for _ in range(MAX_SUBSCRIBERS + 2)
        ]
        before = open_descriptors()
        for _ in range(3):
            for client in clients:
                assert client.greet(link=False)
                server.receive()
        assert open_descriptors() == before + MAX_SUBSCRIBERS
        server.publish(SNAPSHOT)
        assert clients[0].next_snapshot(None, timeout_s=5.0) is not None
        clock.advance(SUBSCRIPTION_S + 0.1)
        server.publish(SNAPSHOT)
        assert open_descriptors() == before
    assert clients[-1].snapshot() is None  # there was no room for it


def test_whatever_is_passed_to_the_flight_process_it_keeps_only_a_socket_it_can_answer(
    server: MailboxServer, tmp_path: Path
) -> None:
    command = msgspec.json.encode(Command(id="c", name="hold"))
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as of_the_network,
        (tmp_path / "file").open("w") as file,
    ):
        stranger.connect(str(tmp_path / "flight.sock"))
        before = open_descriptors()
        numbers = [file.fileno(), of_the_network.fileno(), stranger.fileno()]
        for passed in ([numbers[0]], [numbers[1]], numbers * 80):
            for data in (command, b"garbage"):
                extra = (
                    socket.SOL_SOCKET,
                    socket.SCM_RIGHTS,
                    struct.pack(f"{len(passed)}i", *passed),
                )
                stranger.sendmsg([data], [extra])
                server.receive()
        server.publish(SNAPSHOT)
        assert open_descriptors() == before
    assert server.malformed == 3


def test_a_client_that_does_not_read_is_never_waited_for(
    server: MailboxServer, tmp_path: Path
) -> None:
    ours, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # blocking ones
    with ours, passed, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        extra = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", passed.fileno()))
        sender.sendmsg(
            [b'{"type":"hello","link":false}'], [extra], 0, str(tmp_path / "flight.sock")
        )
        server.receive()
        for _ in range(2000):  # more than any queue of the kernel holds
            server.publish(SNAPSHOT)
        assert b'"boot_id":"boot-1"' in ours.recv(65_536)


@pytest.mark.parametrize(
    ("directory", "sockets"), [(0o750, 0o660), (0o700, 0o600), (0o755, 0o600), (0o710, 0o600)]
)
def test_the_group_may_command_only_where_the_directory_is_the_groups(
    tmp_path: Path, clock: ManualClock, directory: int, sockets: int
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(directory)
    with MailboxServer(path=run / "flight.sock", clock=clock):
        assert {path.stat().st_mode & 0o777 for path in run.iterdir()} == {sockets}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
