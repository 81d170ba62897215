"""Photographs through a real worker: taken once, at intervals, and fetched by the ground."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp.camera.photograph import Photographer
from blimp.camera.store import PhotoStore
from blimp.clock import SystemClock
from blimp.errors import CameraError, LeaseLost, LinkError, NotGenuine, PhotoError
from blimp.link.camera_control import ControlServer
from blimp.link.mailbox import MailboxClient
from blimp.photo import Photo, PhotoRequest
from blimp.queue import TaskApp
from blimp.queue.redis.client import RedisServer
from blimp.queue.resources import Grant, ResourcePool
from blimp.service.parameters import FlownFile
from blimp.service.photos import ShipPhotos
from blimp.tasks.app import build_ship_app
from blimp.tasks.client import VehicleClient, photo_channel, photo_turn
from ground_station.photos import LEAST_BYTES, Pace, PhotoFetcher, PhotoFiles, turn_s
from tests.camera.test_store import Drawn
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.tasks.ship import FlightSide, publish


class Camera(Photographer):
    """The camera's process, as far as the worker asks it."""

    source: Drawn

    def __init__(self, source: Drawn, store: PhotoStore) -> None:
        super().__init__(source=source, store=store)
        self.source = source
        self.requests: list[PhotoRequest] = []
        self.late: threading.Event | None = None
        self.refusal = ""

    def take(self, request: PhotoRequest) -> Photo:
        self.requests.append(request)
        if self.refusal:
            raise CameraError(self.refusal)
        taken = super().take(request)
        if self.late is not None and len(self.requests) == 1:
            self.late.wait(DEADLINE_S)
        return taken


@pytest.fixture
def store(directory: Path) -> PhotoStore:
    made = PhotoStore(directory / "photos", free_bytes=0)
    made.open()
    return made


@pytest.fixture
def camera(store: PhotoStore, directory: Path) -> Iterator[Camera]:
    camera = Camera(Drawn((640, 480)), store)
    with ControlServer(directory / "camera-control.sock", {"photo": camera.answer}):
        yield camera


@pytest.fixture
def app(url: str, mailbox: MailboxClient, directory: Path, store: PhotoStore) -> Iterator[TaskApp]:
    flown = FlownFile(directory / "airframe.json")
    photos = ShipPhotos(store.directory, control=directory / "camera-control.sock", flown=flown)
    with build_ship_app(
        vehicle="twin", broker=url, mailbox=mailbox, flown=flown, photos=photos
    ) as app:
        yield app


@pytest.fixture(autouse=True)
def _ship(ship: FlightSide) -> None:
    """A flight process, of which photographs want nothing."""


@pytest.fixture
def files(tmp_path: Path) -> PhotoFiles:
    return PhotoFiles(tmp_path / "ground" / "twin")


@pytest.fixture
def fetcher(ground: VehicleClient, files: PhotoFiles) -> Iterator[PhotoFetcher]:
    with PhotoFetcher(ground, files, clock=SystemClock()) as fetcher:
        yield fetcher


@pytest.fixture
def photo(ground: VehicleClient, camera: Camera, store: PhotoStore) -> Photo:
    """One that was taken."""
    ground.send("photo").wait(DEADLINE_S)
    (taken,) = store.photos(1)
    return taken


def test_it_is_taken_once_with_where_the_ship_was(
    ship: FlightSide,
    mailbox: MailboxClient,
    ground: VehicleClient,
    camera: Camera,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(ship, mailbox)
    monkeypatch.setattr("blimp.tasks.photo.HEARD_S", DEADLINE_S)  # on a busy machine, too
    monkeypatch.setattr("blimp.tasks.photo.ASK_S", 0.1)
    camera.late = threading.Event()  # so it is asked again, under the same id
    reply = ground.send("photo").wait(DEADLINE_S)
    assert reply.state == "SUCCESS", reply.reason
    camera.late.set()
    first, again, *_ = camera.requests
    assert (first.id, again.id, camera.source.taken) == (reply.id, reply.id, 1)
    assert first.position_ned_m == (1.0, -2.0, -3.0)
    assert first.attitude_rad == (0.01, -0.02, 1.5)
    assert first.place is None  # it has no GPS
    assert reply.result["width"] == 640
    assert not ship.named("photo"), "the flight process has nothing to do with it"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"every_s": 0.5}, "every_s must be a finite number, 1 to 3600 s"),
        ({"every_s": "2"}, "every_s must be"),
        ({"count": 3}, "count above 1 needs every_s"),
        ({"count": 0}, "count must be a whole number"),
    ],
)
def test_what_no_camera_takes_is_refused(
    ground: VehicleClient, camera: Camera, arguments: dict[str, Any], words: str
) -> None:
    reply = ground.send("photo", arguments).wait(DEADLINE_S)
    assert reply.state == "REFUSED"
    assert words in reply.reason


def test_a_camera_that_fails_says_why(ground: VehicleClient, camera: Camera) -> None:
    camera.refusal = "imx296: it is in use"
    reply = ground.send("photo").wait(DEADLINE_S)
    assert (reply.state, reply.reason) == ("REFUSED", "imx296: it is in use")


def test_a_ship_without_a_camera_says_so_at_once(
    ground: VehicleClient, fetcher: PhotoFetcher
) -> None:
    reply = ground.send("photo").wait(DEADLINE_S)
    assert reply.state == "REFUSED"
    assert reply.reason.startswith("no camera: `blimp camera` does not run on this ship")
    assert fetcher.waiting() == []


def test_a_camera_that_was_killed_is_waited_for(
    ground: VehicleClient, directory: Path, store: PhotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory / "camera-control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.bind(str(path))
    with ground.send("photo") as sent:
        sent.wait(0.3)
        camera = Camera(Drawn(), store)
        with ControlServer(path, {"photo": camera.answer}):
            assert sent.wait(DEADLINE_S).state == "SUCCESS"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.bind(str(path))
    monkeypatch.setattr("blimp.tasks.photo.PHOTO_S", 0.5)
    reply = ground.send("photo").wait(DEADLINE_S)
    assert (reply.state, reply.reason) == (
        "FAILURE", "the camera does not answer: asked for 0.5 s",
    )  # fmt: skip


def test_at_intervals_until_they_are_stopped(
    ground: VehicleClient, camera: Camera, store: PhotoStore
) -> None:
    reply = ground.send("photo", {"every_s": 1.0, "count": 2}).wait(DEADLINE_S)
    assert reply.state == "SUCCESS"
    wait_until(lambda: len(store.photos(9)) == 2, "the second is not taken")
    assert [one.id for one in camera.requests] == [reply.id, f"{reply.id}.2"]
    assert reply.result["next"] == f"{reply.id}.2"
    wait_until(lambda: ground.result(f"{reply.id}.2").state == "SUCCESS", "its end is not known")
    last = ground.result(f"{reply.id}.2").result
    assert last["name"] in {one.name for one in store.photos(9)}
    assert last["next"] == ""
    ground.send("photo", {"every_s": 1.0}).wait(DEADLINE_S)
    assert ground.send("photo_stop").wait(DEADLINE_S).state == "SUCCESS"
    taken = camera.source.taken
    late = threading.Event()
    late.wait(1.5)  # no event says that nothing comes
    assert camera.source.taken == taken == 3


def test_a_newer_series_replaces_the_one_before(ground: VehicleClient, camera: Camera) -> None:
    first = ground.send("photo", {"every_s": 2.0}).wait(DEADLINE_S)
    second = ground.send("photo", {"every_s": 1.0, "count": 3}).wait(DEADLINE_S)
    wait_until(lambda: len(camera.requests) == 4, "the others are not taken")
    assert [one.id for one in camera.requests] == [
        first.id, second.id, f"{second.id}.2", f"{second.id}.3",
    ]  # fmt: skip


def test_the_ground_fetches_it_whole_and_the_ship_deletes_it(
    ground: VehicleClient, camera: Camera, fetcher: PhotoFetcher, store: PhotoStore
) -> None:
    ids = [ground.send("photo").wait(DEADLINE_S).id for _ in range(6)]
    waiting = fetcher.waiting()
    assert {one.id for one in waiting} == set(ids)
    for one in waiting:
        wanted = store.read(one.name, 0, 262_144, preview=False)
        path = fetcher.fetch(one)
        assert path is not None
        assert path.read_bytes()[:262_144] == wanted
        assert fetcher.files.path(one.name, preview=True) is not None
    assert fetcher.waiting() == store.photos(9) == []
    assert fetcher.files.photos() == waiting
    assert not list(fetcher.files.directory.glob("*.part"))
    assert fetcher.fetch(waiting[0]) is not None  # once more: it is here, and confirmed


def test_what_was_begun_goes_on_also_where_it_was_damaged(
    ground: VehicleClient, photo: Photo, files: PhotoFiles, store: PhotoStore
) -> None:
    whole = store.read(photo.name, 0, 262_144, preview=False)
    came = [0]
    with PhotoFetcher(
        ground, files, clock=SystemClock(), is_wanted=lambda: came[-1] <= photo.preview_bytes
    ) as fetcher:
        assert fetcher.fetch(photo, on_bytes=came.append) is None
    (part,) = files.directory.glob("*.part")
    begun = part.read_bytes()
    assert begun
    assert whole.startswith(begun)
    asked: list[int] = []
    with PhotoFetcher(ground, files, clock=SystemClock()) as fetcher:
        fetcher.fetch(photo, preview=True)
        part.write_bytes(b"x" + begun[1:])
        path = fetcher.fetch(photo, on_bytes=asked.append)
    assert path is not None
    assert path.read_bytes()[:262_144] == whole
    assert asked[0] > len(begun), "it does not go on where it ended"
    assert asked.count(photo.bytes) == 2, "a damaged beginning is not fetched again"


def test_a_turn_is_as_short_as_the_link_allows_and_one_that_is_lost_is_taken_again(
    ground: VehicleClient,
    photo: Photo,
    fetcher: PhotoFetcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left of a turn keeps others from fetching where its ground is killed."""
    pool = ResourcePool(ground.server(), photo_turn("twin"))
    left_s: list[float] = []

    def held(count: int) -> None:
        turn = pool.who("twin")
        assert turn is not None
        left_s.append(turn.left_s)
        if len(left_s) == 1:  # no renewal came in time: the card of the broker was slow

            def lost(_: Grant) -> None:
                monkeypatch.undo()
                raise LeaseLost("not renewed")

            monkeypatch.setattr(Grant, "check", lost)

    assert fetcher.fetch(photo, on_bytes=held) is not None
    assert len(left_s) > 1
    assert max(left_s) <= turn_s(0.0) < turn_s(0.1) < turn_s(0.5) == turn_s(5.0)


def test_a_ship_that_sends_something_else_leaves_nothing(
    photo: Photo, fetcher: PhotoFetcher, store: PhotoStore
) -> None:
    forged = msgspec.structs.replace(photo, sha256="0" * 64)
    with pytest.raises(PhotoError, match="is not what its record says"):
        fetcher.fetch(forged)
    longer = msgspec.structs.replace(photo, bytes=photo.bytes + 1)
    with pytest.raises(PhotoError, match="bytes at"):
        fetcher.fetch(longer)
    assert fetcher.files.path(photo.name) is None
    assert store.photos(1) == [photo]
    unknown = msgspec.structs.replace(photo, name="20270115T080000Z-0123456789abcdef")
    with pytest.raises(PhotoError, match=r"the ship: .*No such file"):
        fetcher.fetch(unknown)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "../../../etc/cron.d/x"),
        ("bytes", 10**18),
        ("bytes", -1),
        ("sha256", "zz"),
        ("preview_bytes", 10**9),
    ],
)
def test_a_record_that_is_none_is_refused(
    photo: Photo,
    fetcher: PhotoFetcher,
    monkeypatch: pytest.MonkeyPatch,
    field: str,
    value: object,
) -> None:
    forged = msgspec.structs.replace(photo, **{field: value})
    monkeypatch.setattr(ShipPhotos, "photos", lambda *_, **__: [forged])
    with pytest.raises(PhotoError, match=r"cannot be read|no photograph's name"):
        fetcher.waiting()


def test_a_full_disk_on_the_ground_keeps_it_on_the_ship(
    photo: Photo,
    fetcher: PhotoFetcher,
    store: PhotoStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(PhotoError, match="No space left on device"):
            fetcher.fetch(photo)
    assert store.photos(1) == [photo]
    assert fetcher.fetch(photo) is not None


def test_a_piece_that_is_lost_is_asked_for_again(
    ground: VehicleClient,
    photo: Photo,
    fetcher: PhotoFetcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    really = ground.ask

    def lossy(task: str, arguments: dict[str, Any]) -> None:
        asked.append(task)
        if len(asked) not in (2, 3):
            really(task, arguments)

    monkeypatch.setattr(ground, "ask", lossy)
    monkeypatch.setattr("ground_station.photos.LEAST_WAIT_S", 0.2)
    assert fetcher.fetch(photo) is not None
    monkeypatch.setattr(ground, "ask", lambda *_: None)
    with pytest.raises(LinkError, match="does not answer photo_piece: asked 5 times"):
        fetcher._piece(photo.name, 0, 10, False)


def test_what_is_no_address_gets_nothing(
    ground: VehicleClient, photo: Photo, app: TaskApp, link: RedisServer, store: PhotoStore
) -> None:
    heard: Any = link.client.pubsub()
    heard.psubscribe(photo_channel("twin", "*"))
    heard.get_message(timeout=1.0)
    asked = {"name": photo.name, "offset": 0, "size": 10}
    ground.ask("photo_piece", {"to": "x:y *", "number": 1, **asked})
    ground.ask("photo_piece", {"to": "0" * 16, "number": "1 x", **asked})
    ground.ask("photo_piece", {"to": "0" * 16, "number": 7, **asked})
    found = heard.get_message(timeout=DEADLINE_S)
    assert found["channel"].decode() == photo_channel("twin", "0" * 16)
    assert found["data"] == b"7 " + store.read(photo.name, 0, 10, preview=False)
    heard.close()


def test_the_pace_keeps_a_piece_short_beside_a_round_trip() -> None:
    pace = Pace()
    for _ in range(200):
        size = pace.next_size()
        pace.took(size, 0.2 + size / 125_000)  # 200 ms, 1 Mbit/s
    assert pace.size / 125_000 == pytest.approx(0.2 * 0.208, rel=0.1)
    slow = Pace()
    for _ in range(200):
        size = slow.next_size()
        slow.took(size, 0.2 + size / 1000)
    assert slow.size == LEAST_BYTES


def test_with_a_key_a_list_that_is_not_signed_for_this_question_is_not_believed(
    url: str, mailbox: MailboxClient, directory: Path, store: PhotoStore, camera: Camera,
    files: PhotoFiles, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    key = "k" * 32
    photos = ShipPhotos(
        store.directory, control=directory / "camera-control.sock",
        flown=FlownFile(directory / "airframe.json"),
    )  # fmt: skip
    with (
        build_ship_app(
            vehicle="twin", broker=url, mailbox=mailbox, photos=photos, signing_key=key
        ) as app,
        working(app, name="twin"),
        VehicleClient(url, "twin", signing_key=key) as ground,
        PhotoFetcher(ground, files, clock=SystemClock()) as fetcher,
    ):
        assert ground.send("photo").wait(DEADLINE_S).state == "SUCCESS"
        (photo,) = fetcher.waiting()
        assert fetcher.fetch(photo) is not None
        really = PhotoFetcher._answer
        earlier = really(fetcher, "photo_list", {"most": 1})
        monkeypatch.setattr(PhotoFetcher, "_answer", lambda *_: earlier)
        fetcher._number += 1
        with pytest.raises(NotGenuine, match="its signature is wrong"):
            fetcher.waiting()
        monkeypatch.setattr(PhotoFetcher, "_answer", lambda *_: b'{"photos":[]}')
        with pytest.raises(NotGenuine, match="it is not signed"):
            fetcher.waiting()
