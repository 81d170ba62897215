"""`blimp broker acl` on a real server: each user does its part, and nothing of another's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from blimp.camera.photograph import Photographer
from blimp.camera.store import PhotoStore
from blimp.errors import NotAuthorised
from blimp.link.camera_control import ControlServer
from blimp.link.telemetry import TelemetryPublisher, TelemetryReader, stream_key, vehicles
from blimp.queue import TaskApp
from blimp.queue.brokers.streams.envelope import post
from blimp.queue.publish.publisher import SendOptions, make_message
from blimp.queue.redis.keys import Keys
from blimp.service.computer.acl import users
from blimp.service.parameters import FlownFile
from blimp.service.photos import ShipPhotos
from blimp.ship import Lockstep
from blimp.tasks.app import build_ship_app
from blimp.tasks.client import VehicleClient, vehicle_queue
from blimp.tasks.pilot_link import heartbeat_key
from blimp.types import Outcome
from ground_station import cli
from tests.broker import EmbeddedBroker
from tests.camera.test_store import Drawn
from tests.forked import blimp
from tests.ground_station.ship import LockstepMailbox
from tests.queue.conftest import working

VEHICLE = "twin"
PHOTO = (["photo"], ["photo", "--every-s", "60"], ["photo", "stop"], ["photo", "get"])
RESULT = "celery-task-meta-4b0c0e5e"
OTHERS = "blimp:queue:blimp.twin-2:level:0"


class Server:
    """A broker with the users of one ship."""

    def __init__(self, broker: EmbeddedBroker, users: str) -> None:
        self.path = broker.url.removeprefix("redis+socket://").partition("?")[0]
        self.admin = redis.Redis(unix_socket_path=self.path)
        self.passwords = dict(re.findall(r"^user (\S+) .*?>(\S+)", users, flags=re.MULTILINE))

    def url(self, user: str) -> str:
        return f"redis+socket://{user}:{self.passwords[user]}@{self.path}?virtual_host=0"

    def client(self, user: str) -> redis.Redis:
        password = self.passwords[user]
        return redis.Redis(unix_socket_path=self.path, username=user, password=password)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server, started with the file as it was printed."""
    printed = blimp("broker", "acl", "--vehicle", VEHICLE)
    first, _, lines = printed.stdout.partition("\n")
    assert first == "user default off"  # the test itself asks as that user
    directory = tmp_path_factory.mktemp("b")
    file = directory / "users.acl"
    file.write_text(lines)
    with EmbeddedBroker(directory=directory, options={"aclfile": str(file)}) as broker:
        yield Server(broker, lines)


def test_each_does_its_part_from_the_ground_to_a_motor_and_back(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    driven: list[float] = []
    with Lockstep(VEHICLE, seed=1, bench=True) as ship:

        class Seen(LockstepMailbox):
            def wait(self, id: str, *, timeout_s: float) -> Outcome | None:
                driven.append(ship.world.outputs["tail"])
                return super().wait(id, timeout_s=timeout_s)

        store = PhotoStore(tmp_path / "photos", free_bytes=0)
        store.open()
        control, flown = tmp_path / "camera.sock", FlownFile(tmp_path / "airframe.json")
        photographer = Photographer(source=Drawn(), store=store)
        app = build_ship_app(
            vehicle=VEHICLE, broker=server.url("vehicle"), mailbox=Seen(ship),
            photos=ShipPhotos(store.directory, control=control, flown=flown),
        )  # fmt: skip
        camera = ControlServer(control, {"photo": photographer.answer})
        with camera, app, working(app, name=VEHICLE):
            with VehicleClient(server.url("ground"), VEHICLE) as ground:
                assert ground.ping(timeout_s=5.0).state == "SUCCESS"
                motor = {"name": "tail", "percent": 20.0, "seconds": 0.5}
                assert ground.send("motor", motor).wait(10.0).state == "SUCCESS"
                assert max(driven) == pytest.approx(0.2, abs=0.05)
                assert ground.estop().state == "SUCCESS"
            with TelemetryPublisher(server.url("vehicle"), VEHICLE) as publisher:
                assert publisher.publish(ship.snapshot(), 0.0)
            where = ["--broker", server.url("ground"), "--vehicle", VEHICLE]
            for words in (
                ["control", "take"],
                ["ping"],
                ["control", "release"],
                ["status"],
                *PHOTO,
            ):
                assert cli.run([*where, *words]) == 0, capsys.readouterr()
    for user in ("ground", "viewer"):
        assert list(vehicles(server.url(user))) == [VEHICLE]
        with TelemetryReader(server.url(user), VEHICLE) as reader:
            assert reader.latest() is not None
            assert next(reader.follow()) is not None
    refused = [entry["object"] for entry in server.admin.acl_log(100)]
    assert refused == [], refused


EVERYBODY = (
    ("FLUSHALL",), ("CONFIG", "SET", "maxmemory", "1"), ("ACL", "SETUSER", "ground", "+@all"),
    ("ACL", "LIST"), ("SHUTDOWN", "NOSAVE"), ("KEYS", "*"), ("MONITOR",),
    ("CLIENT", "LIST"), ("CLIENT", "PAUSE", "1"), ("CLIENT", "TRACKING", "ON", "BCAST"),
    ("CLIENT", "KILL", "TYPE", "normal"), ("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"),
    ("REPLICAOF", "evil", "6379"), ("SWAPDB", "0", "1"),
    ("XADD", OTHERS, "*", "a", "b"), ("XADD", stream_key("twin-2"), "*", "a", "b"),
    ("EVAL", f"return redis.call('XADD', '{OTHERS}', '*', 'a', 'b')", "0"),
    ("XADD", heartbeat_key("twin-2"), "*", "a", "b"),
    ("PUBLISH", "else", "x"), ("SUBSCRIBE", "else"),
)  # fmt: skip
MUST_NOT: dict[str, tuple[tuple[str, ...], ...]] = {
    # It commands: it forges neither telemetry nor the confirmation of an emergency stop.
    "ground": (
        ("XADD", stream_key(VEHICLE), "*", "snapshot", "{}"), ("DEL", stream_key(VEHICLE)),
        ("SET", RESULT, "{}"), ("DEL", RESULT), ("PUBLISH", RESULT, "{}"),
        ("EVAL", f"return redis.call('PUBLISH', '{RESULT}', 'x')", "0"),
        ("EVAL", f"return redis.call('SET', '{RESULT}', 'x')", "0"),
        ("SET", "blimp.worker.blimp.twin.twin", "x"), ("PSUBSCRIBE", "*"),
    ),
    "vehicle": (
        ("DEL", "blimp:pool:{blimp.pilot.twin-2}:resources"),
        ("GET", "blimp.worker.blimp.twin-2.twin-2"), ("PSUBSCRIBE", "*"),
    ),
    # It looks.
    "viewer": (
        ("XADD", stream_key(VEHICLE), "*", "a", "b"), ("DEL", stream_key(VEHICLE)),
        ("XADD", heartbeat_key(VEHICLE), "*", "a", "b"),
        ("XADD", "blimp:queue:blimp.twin:level:0", "*", "a", "b"), ("GET", RESULT),
        ("XRANGE", "blimp:queue:blimp.twin:level:0", "-", "+"), ("SUBSCRIBE", RESULT),
        ("PUBLISH", RESULT, "x"), ("EVAL", "return 1", "0"), ("INFO",), ("SET", "x", "y"),
        ("PSUBSCRIBE", "*"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("user", MUST_NOT)
def test_nobody_does_what_is_anothers(server: Server, user: str) -> None:
    client = server.client(user)
    for words in (*EVERYBODY, *MUST_NOT[user]):
        with pytest.raises((NoPermissionError, redis.ResponseError)) as refused:
            client.execute_command(*words)
        # A script's call is refused with the same words inside an error of the script.
        said = r"no permission|ACL failure|No permissions|user executing the script can't"
        assert re.search(said, str(refused.value)), words
    assert server.admin.keys("*") == []


def test_without_a_user_nobody_enters_and_each_ship_has_its_own(server: Server) -> None:
    server.admin.execute_command("ACL", "SETUSER", "default", "off")
    stranger = TelemetryReader(f"redis+socket://{server.path}", VEHICLE)
    with stranger, pytest.raises(NotAuthorised):
        stranger.latest()
    assert list(users(["a", "b"])) == ["ground", "viewer", "vehicle-a", "vehicle-b"]


@pytest.mark.parametrize("lasts", ["end", "start"])
def test_a_claim_in_a_queue_of_another_holds_up_no_ship(server: Server, lasts: str) -> None:
    """A claim is a header: who may send to a ship may name any queue in it."""
    queue = vehicle_queue(VEHICLE)
    headers = {"blimp_unique": f"{lasts}:{'a' * 32}:another's"}
    options: SendOptions = {"headers": headers}
    message = make_message("t", (1,), {}, options, defaults=None, queue=queue, now_s=0.0, origin="")
    put, url = post(message), server.url("vehicle")
    ground, level = server.client("ground"), Keys().queue(queue).levels[2]
    ran: list[int] = []
    with TaskApp(queue, broker=url, result_backend=url) as app:
        task = app.task(name="t")(ran.append)
        ground.xadd(level, {"h": put.head, "b": put.body, "x": 0})  # the server drops it
        ground.xadd(level, {"h": put.head, "b": put.body})
        with working(app, name="w"):
            task.delay(2).get(timeout=10.0)
            app.result(message.id).get(timeout=10.0)
    assert sorted(ran) == [1, 2]
