"""The camera's datagrams, as another process sends them."""

from typing import Any

import msgspec
import pytest

from blimp.airframe import Device as Row
from blimp.errors import BoardError
from blimp.hardware.tag_camera import TagCamera
from blimp.types import CameraPose, SeenSample, Sighting
from tests.hardware.doubles import Doubles, polled

POSE = CameraPose(
    boot_id="a", sequence=1, exposed_s=9.9, position_ned_m=(1.0, -2.0, -1.5), yaw_rad=0.3,
    accuracy_m=0.03, bias_m=0.02, yaw_accuracy_rad=0.02, tags=3,
)  # fmt: skip


class Wire:
    """The socket, with what a test puts on it."""

    def __init__(self) -> None:
        self.doubles = Doubles()

    def put(self, **changes: Any) -> None:
        self.send(msgspec.msgpack.encode(msgspec.structs.replace(POSE, **changes)))

    def send(self, data: bytes) -> None:
        self.doubles.datagrams("camera.sock").waiting.append(data)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def camera(wire: Wire) -> TagCamera:
    row = Row(name="camera", chip="imx296", bus="camera")
    made = TagCamera(row=row, buses=wire.doubles)
    for _ in range(2):
        made.poll(9.95)
    return made


def test_a_pose_has_the_age_of_its_exposure(camera: TagCamera, wire: Wire) -> None:
    wire.put()
    camera.poll(10.0)
    assert camera.healthy
    assert camera.sample is not None
    assert camera.sample.position_ned_m == (1.0, -2.0, -1.5)
    assert camera.sample.latency_s == pytest.approx(0.1)
    assert (camera.sample.t_s, camera.sample.bias_m, camera.sample.yaw_rad) == (10.0, 0.02, 0.3)


def test_a_picture_without_tags_is_life_and_no_sample(camera: TagCamera, wire: Wire) -> None:
    wire.put(position_ned_m=None, reason="no tag in view")
    camera.poll(10.0)
    assert (camera.healthy, camera.error, camera.sample) == (True, "no tag in view", None)


def test_only_the_newest_of_what_waits_is_used(camera: TagCamera, wire: Wire) -> None:
    wire.put(sequence=3, position_ned_m=(3.0, 0.0, 0.0))
    wire.put(sequence=2, position_ned_m=(2.0, 0.0, 0.0))  # overtaken
    camera.poll(10.0)
    assert camera.sample is not None
    assert camera.sample.position_ned_m[0] == 3.0
    wire.put(boot_id="b", sequence=1, position_ned_m=(4.0, 0.0, 0.0))  # it was started again
    camera.poll(10.05)
    assert camera.sample.position_ned_m[0] == 4.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exposed_s": 9.4}, "0.60 s old, the limits are 0 to 0.5 s"),
        ({"exposed_s": 10.2}, "-0.20 s old"),
        ({"exposed_s": float("nan")}, "nan s old"),
        ({"position_ned_m": (float("nan"), 0.0, 0.0)}, "no number"),
        ({"position_ned_m": (1001.0, 0.0, 0.0)}, "out of range"),
        ({"yaw_rad": 8.0}, "out of range"),
        ({"accuracy_m": -1.0}, "out of range"),
        ({"bias_m": float("inf")}, "no number"),
    ],
)
def test_what_cannot_be_true_is_refused(
    camera: TagCamera, wire: Wire, changes: dict[str, Any], said: str
) -> None:
    wire.put(**changes)
    camera.poll(10.0)
    assert camera.sample is None
    assert said in camera.error


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"\xff" * 4096, msgspec.msgpack.encode({})])
def test_what_is_no_pose_is_refused(camera: TagCamera, wire: Wire, data: bytes) -> None:
    wire.send(data)
    camera.poll(10.0)
    assert camera.sample is None
    assert "refused" in camera.error


def test_a_process_that_says_nothing_is_missed(camera: TagCamera) -> None:
    polled(camera, 20, start_s=10.0, every_s=0.1)
    assert not camera.healthy
    assert "does `blimp camera` run" in camera.error


def test_a_picture_that_stands_still_is_missed(camera: TagCamera, wire: Wire) -> None:
    for step in range(30):
        wire.put(sequence=step + 1, exposed_s=10.0 + 0.1 * step)
        camera.poll(10.0 + 0.1 * step)
    assert not camera.healthy


def test_a_bad_option_is_named(wire: Wire) -> None:
    row = Row(name="camera", chip="imx296", bus="camera", options={"height": 5})
    with pytest.raises(BoardError, match=r"camera: .*64.*height"):
        TagCamera(row=row, buses=wire.doubles)


SEEN = SeenSample(
    t_s=9.9, found=(Sighting(kind="red", direction_body=(1.0, 0.0, 0.0), size_rad=0.1),)
)


def test_what_was_seen_comes_beside_the_position(camera: TagCamera, wire: Wire) -> None:
    wire.send(msgspec.msgpack.encode(SEEN))
    camera.poll(10.0)
    assert (camera.seen, camera.sample) == (SEEN, None)
    wire.put()
    camera.poll(10.05)
    assert camera.sample is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"t_s": 9.0}, "1.00 s old"),
        ({"t_s": 10.5}, "-0.50 s old"),
        ({"t_s": float("nan")}, "nan s old"),
        ({"axis_body": (0.0, 0.0, 0.0)}, "no unit vector"),
        ({"found": (Sighting(kind="a", direction_body=(2.0, 0.0, 0.0), size_rad=0.1),)}, "unit"),
        ({"found": (Sighting(kind="a", direction_body=(1, 0, 0), size_rad=-0.1),)}, "out of range"),
        ({"found": SEEN.found * 33}, "33 things in a picture, the limit is 32"),
        ({"camera_body_m": (float("inf"), 0.0, 0.0)}, "out of range"),
    ],
)
def test_what_cannot_have_been_seen_is_refused(
    camera: TagCamera, wire: Wire, changes: dict[str, Any], words: str
) -> None:
    wire.send(msgspec.msgpack.encode(msgspec.structs.replace(SEEN, **changes)))
    camera.poll(10.0)
    assert camera.seen is None
    assert words in camera.error


def test_a_picture_of_before_is_not_seen_again(camera: TagCamera, wire: Wire) -> None:
    for _ in range(2):
        wire.send(msgspec.msgpack.encode(SEEN))
        camera.poll(10.0)
    assert "older than the last one" in camera.error
