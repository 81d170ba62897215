"""Pictures through a real server: asked for one by one, and a thin link is left alone."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.clock import ManualClock, SystemClock
from blimp.errors import CameraError
from blimp.link import picture
from blimp.link.picture import PAUSE_S, PERIOD_S, PictureReader, PictureSender
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.urls import redis_url
from tests.broker import EmbeddedBroker
from tests.tcp_link import TcpLink

JPEG = b"\xff\xd8\xff" + bytes(8000)
KEY, OTHER = "k" * 32, "o" * 32
CLOCK = SystemClock()


class Camera:
    """Takes pictures with rising numbers; `asked` counts them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.asked: list[int] = []
        self.problem = ""

    def take(self, after: int, timeout_s: float) -> dict[str, Any]:
        self.asked.append(after)
        if self.problem:
            raise CameraError(self.problem)
        about = {"sequence": next(self._numbers), "t_s": CLOCK.now_s() - 0.1, "size": [4, 2]}
        return {"about": about | {"seen": {}}, "jpeg": JPEG}


def first(reader: PictureReader) -> picture.Picture:
    """Return the first picture: a wish that comes before its reader listens is lost."""
    found = next(found for _ in range(20) if (found := reader.next(-1)) is not None)
    assert isinstance(found, picture.Picture)
    return found


def test_each_wish_gets_one_picture_and_nobody_looking_gets_none(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    camera, signer = Camera(), Signer(KEY)
    with (
        PictureSender(broker.url, vehicle, take=camera.take, signer=signer, clock=CLOCK),
        PictureReader(broker.url, vehicle, signer=signer, clock=CLOCK) as reader,
    ):
        found = first(reader)
        assert (found.jpeg, found.about["size"]) == (JPEG, [4, 2])
        assert 0.1 <= found.age_s < 10.0
        assert reader.wait_s >= PERIOD_S
        after = found.about["sequence"]
        second = reader.next(after)
        assert second is not None
        assert (second.about["sequence"], camera.asked[-1]) == (after + 1, after)
        assert camera.asked.count(after) == 1, "a wish, a picture"
        with redis.Redis.from_url(redis_url(broker.url)) as server:
            assert server.xlen(picture.PICTURE_PREFIX + vehicle) == 1
            assert 0 < server.ttl(picture.PICTURE_PREFIX + vehicle) <= picture.KEPT_S


def test_a_camera_that_fails_sends_none_and_says_nothing_wrong(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    camera = Camera()
    camera.problem = "no camera 0"
    with (
        PictureSender(broker.url, vehicle, take=camera.take, signer=None, clock=CLOCK),
        PictureReader(broker.url, vehicle, signer=None, clock=CLOCK) as reader,
    ):
        assert reader.next(-1) is None
        assert "does not answer" in reader.words
        camera.problem = ""
        assert first(reader).jpeg == JPEG


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"about": "{}", "jpeg": "GIF89a"}, "no JPEG"),
        ({"about": "[1", "jpeg": JPEG}, "picture of"),
        ({"jpeg": JPEG}, "about"),
        ({"about": '{"sha256":"0"}', "jpeg": JPEG}, "another picture than it says"),
        ({"about": "{}", "jpeg": JPEG * 20}, "no JPEG"),
    ],
)
def test_what_is_no_picture_is_refused(
    broker: EmbeddedBroker, vehicle: str, fields: dict[str, Any], words: str
) -> None:
    with (
        redis.Redis.from_url(redis_url(broker.url)) as server,
        PictureReader(broker.url, vehicle, signer=None, clock=CLOCK) as reader,
    ):
        reader._last_id = "0-0"
        server.xadd(picture.PICTURE_PREFIX + vehicle, fields)
        assert reader.next(-1) is None
        assert words in reader.words


def test_a_picture_that_another_key_has_signed_is_not_shown(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    with (
        PictureSender(broker.url, vehicle, take=Camera().take, signer=Signer(OTHER), clock=CLOCK),
        PictureReader(broker.url, vehicle, signer=Signer(KEY), clock=CLOCK) as reader,
    ):
        while "does not answer" in (reader.next(-1), reader.words)[1]:
            pass
        assert "signature" in reader.words


def test_an_old_picture_that_a_broker_shows_again_is_not_live(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    signer, key = Signer(KEY), picture.PICTURE_PREFIX + vehicle
    with (
        redis.Redis.from_url(redis_url(broker.url)) as server,
        PictureReader(broker.url, vehicle, signer=signer, clock=CLOCK) as reader,
    ):
        with PictureSender(broker.url, vehicle, take=Camera().take, signer=signer, clock=CLOCK):
            first(reader)
            ((_, shown),) = server.xrange(key)
        shown_again = threading.Event()

        def show() -> None:
            last = "$"
            while not shown_again.is_set():
                if news := server.xread({picture.WISH_PREFIX + vehicle: last}, block=100):
                    last = news[0][1][-1][0]
                    server.xadd(key, shown)

        broken = threading.Thread(target=show)
        broken.start()
        try:
            while "does not answer" in (reader.next(-1), reader.words)[1]:
                pass
        finally:
            shown_again.set()
            broken.join()
        assert "answers no wish of this station's" in reader.words


def test_two_stations_get_pictures_of_their_own_wishes(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    signer = Signer(KEY)
    with (
        PictureSender(broker.url, vehicle, take=Camera().take, signer=signer, clock=CLOCK),
        PictureReader(broker.url, vehicle, signer=signer, clock=CLOCK) as one,
        PictureReader(broker.url, vehicle, signer=signer, clock=CLOCK) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for found in pool.map(first, (one, other)):
            assert found.age_s >= 0.1


def test_a_link_with_delay_carries_commands_three_quarters_of_the_time(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    address = broker.url.partition("://")[2]
    with (
        TcpLink(server=str(Path(address.partition("?")[0])), delay_s=0.1) as link,
        PictureSender(broker.url, vehicle, take=Camera().take, signer=None, clock=CLOCK),
        PictureReader(
            f"redis://127.0.0.1:{link.port}/0", vehicle, signer=None, clock=CLOCK
        ) as reader,
    ):
        found = first(reader)
        assert found.took_s >= 0.2
        assert reader.wait_s == pytest.approx(3.0 * found.took_s)


def test_a_link_that_takes_seconds_for_one_is_left_alone(
    broker: EmbeddedBroker, vehicle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with (
        PictureSender(broker.url, vehicle, take=Camera().take, signer=None, clock=CLOCK),
        PictureReader(broker.url, vehicle, signer=None, clock=clock) as reader,
    ):
        read = reader._read

        def read_late(fields: dict[bytes, bytes]) -> Any:
            clock.advance(2.5)
            return read(fields)

        monkeypatch.setattr(reader, "_read", read_late)
        first(reader)
        assert reader.words == "the link is too thin for pictures: one took 2.5 s"
        assert reader.wait_s == PAUSE_S


def test_without_a_broker_it_says_so_and_ends_at_once() -> None:
    nowhere = "redis://127.0.0.1:1/0"
    with (
        PictureSender(nowhere, "twin", take=Camera().take, signer=None, clock=CLOCK) as sender,
        PictureReader(nowhere, "twin", signer=None, clock=CLOCK) as reader,
    ):
        assert reader.next(-1) is None
        assert "127.0.0.1:1" in reader.words
    assert sender.sent == 0
