"""Scripts as picamera2's manual and examples have them, on the simulated Pi.

Its own examples need an installed picamera2, which no index has with its examples: these make the
same calls. Time is the ship's, so that a script that sleeps takes none.
"""

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyapriltags import Detector

from blimp.clock import SystemClock
from blimp.errors import ConfigError
from blimp.sim.remote import RemoteWorld
from blimp.sim.seam import linux_devices
from blimp.sim.server import Server
from blimp.sim.world import World
from tests.directory import socket_directory
from tests.sim.camera.eyes import SCENE, hovering, seeing
from tests.sim.served import running


@pytest.fixture
def world() -> Iterator[World]:
    with hovering() as world:
        yield world


@pytest.fixture
def camera(world: World) -> Iterator[Any]:
    from picamera2 import Picamera2

    with Picamera2() as camera:
        yield camera


def ids(pixels: Any) -> list[int]:
    grey = np.ascontiguousarray(pixels[..., 1] if pixels.ndim == 3 else pixels)
    return sorted(found.tag_id for found in Detector().detect(grey))


def test_capture_jpeg(world: World, tmp_path: Path) -> None:
    """examples/capture_jpeg.py and metadata.py."""
    from picamera2 import Picamera2, Preview

    picam2 = Picamera2()
    picam2.configure(picam2.create_preview_configuration(main={"size": (800, 600)}))
    picam2.start_preview(Preview.QTGL)
    picam2.start()
    began_s = world.t_s
    time.sleep(2)
    metadata = picam2.capture_file(str(tmp_path / "test.jpg"))
    assert 2.0 <= world.t_s - began_s < 2.2
    assert metadata["ExposureTime"] > 0
    assert world.clock is not None
    age_s = world.clock.now_s() - 1e-9 * metadata["SensorTimestamp"]
    assert 0.02 < age_s < 0.08
    image = Image.open(io.BytesIO((tmp_path / "test.jpg").read_bytes()))
    assert image.size == (800, 600)
    assert image.getexif()[271] == "Raspberry Pi"
    assert len(ids(np.asarray(image))) >= 2
    assert picam2.capture_metadata()["SensorTimestamp"] > metadata["SensorTimestamp"]
    picam2.close()


def test_still_while_a_video_is_recorded(camera: Any, tmp_path: Path) -> None:
    """examples/still_during_video.py and capture_mjpeg_timestamp.py, without H.264."""
    from picamera2.encoders import JpegEncoder

    main, lores = {"size": (640, 480)}, {"size": (320, 240), "format": "RGB888"}
    camera.configure(camera.create_video_configuration(main, lores, encode="lores"))
    camera.start_recording(
        JpegEncoder(q=70), str(tmp_path / "v.mjpeg"), pts=str(tmp_path / "pts.txt")
    )
    time.sleep(0.5)
    with camera.captured_request() as request:
        request.save("main", str(tmp_path / "still.png"))
    time.sleep(0.5)
    camera.stop_recording()
    assert Image.open(io.BytesIO((tmp_path / "still.png").read_bytes())).size == (640, 480)
    stamps = [float(line) for line in (tmp_path / "pts.txt").read_text().split()]
    assert len(stamps) == pytest.approx(30, abs=2)
    assert np.diff(stamps) == pytest.approx(
        [33.333] * (len(stamps) - 1), abs=1.0
    )  # the exposure adapts
    frames = (tmp_path / "v.mjpeg").read_bytes().split(b"\xff\xd8\xff")[1:]
    assert len(frames) == len(stamps)
    assert Image.open(io.BytesIO(b"\xff\xd8\xff" + frames[-1])).size == (320, 240)


def test_capture_to_buffer_in_another_mode(camera: Any) -> None:
    """examples/capture_to_buffer.py, capture_headless.py, capture_old_request.py."""
    small = camera.create_still_configuration(main={"size": (1640, 1232)})
    camera.configure(camera.create_preview_configuration())
    camera.start()
    data = io.BytesIO()
    camera.capture_file(data, format="jpeg")
    assert Image.open(data).size == (640, 480)
    data = io.BytesIO()
    camera.switch_mode_and_capture_file(small, data, format="jpeg")
    assert Image.open(data).size == (1640, 1232)
    assert camera.capture_array().shape == (480, 640, 4)
    request = camera.switch_mode_and_capture_request(small)
    assert request.make_array("main").shape == (1232, 1640, 3)
    request.release()
    with pytest.raises(RuntimeError, match="negative ref_count"):
        request.release()
    (array,), metadata = camera.capture_arrays(["main"])
    assert (array.shape, "Lux" in metadata) == ((480, 640, 4), True)
    with pytest.raises(RuntimeError, match="'raw' is not defined"):
        camera.capture_array("raw")


def test_what_is_asked_for_during_a_still_is_a_frame_of_the_video(camera: Any) -> None:
    camera.configure(camera.create_video_configuration(main={"size": (640, 480)}))
    camera.start()
    still = camera.switch_mode_and_capture_request(
        camera.create_still_configuration(main={"size": (800, 600)}), wait=False
    )
    video = camera.capture_request(wait=False)
    sizes = [job.get_result().make_array("main").shape[:2] for job in (still, video)]
    assert sizes == [(600, 800), (480, 640)]


def test_formats_have_picamera2s_order_of_bytes(camera: Any) -> None:
    seen: dict[str, Any] = {}
    for format in ("BGR888", "RGB888", "XBGR8888", "XRGB8888", "YUV420"):
        fixed = {"ExposureTime": 8000, "AnalogueGain": 1.0}
        main = {"size": (320, 240), "format": format}
        camera.configure(camera.create_still_configuration(main=main, controls=fixed))
        camera.start()
        seen[format] = camera.capture_array().astype(int)
        camera.stop()
    rgb = seen["BGR888"].mean(axis=(0, 1))  # red first: the name is of the word, not the bytes
    assert rgb[0] > rgb[2] + 5.0  # a warm floor
    for format, order in (("RGB888", (2, 1, 0)), ("XBGR8888", (0, 1, 2)), ("XRGB8888", (2, 1, 0))):
        found = seen[format].mean(axis=(0, 1))[list(order)]
        assert found == pytest.approx(rgb, abs=2.0), format
    assert seen["YUV420"].shape == (360, 320)
    assert seen["YUV420"][:240].mean() == pytest.approx(rgb @ (0.299, 0.587, 0.114), abs=2.0)


def test_callbacks_draw_into_what_is_encoded_and_controls_hold(camera: Any) -> None:
    """examples/timestamped_video.py, exposure_fixed.py, controls.py."""
    from picamera2 import MappedArray
    from picamera2.encoders import MJPEGEncoder
    from picamera2.outputs import FileOutput

    def draw(request: Any) -> None:
        with MappedArray(request, "main") as mapped:
            mapped.array[:100] = 255

    camera.pre_callback = draw
    fixed = {"ExposureTime": 10_000, "AnalogueGain": 2.0, "FrameRate": 10.0}
    camera.configure(camera.create_video_configuration(main={"size": (320, 240)}, controls=fixed))
    out = io.BytesIO()
    camera.start_recording(MJPEGEncoder(), FileOutput(out))
    metadata = [camera.capture_metadata() for _ in range(3)]
    assert {(one["ExposureTime"], one["AnalogueGain"]) for one in metadata} == {(10_000, 2.0)}
    assert np.diff([one["SensorTimestamp"] for one in metadata]) == pytest.approx([1e8, 1e8])
    with camera.controls as controls:
        controls.ExposureTime = 5_000
    assert camera.capture_metadata()["ExposureTime"] == 5_000
    camera.stop_recording()
    first = Image.open(io.BytesIO(b"\xff\xd8\xff" + out.getvalue().split(b"\xff\xd8\xff")[1]))
    assert np.asarray(first)[:95].min() > 245
    with pytest.raises(RuntimeError, match="Control Exposure is not advertised"):
        camera.set_controls({"Exposure": 1})


def test_easy_captures_and_jobs(camera: Any, tmp_path: Path) -> None:
    """examples/easy_capture.py; capture_request(wait=False) as the camera's process uses it."""
    camera.still_configuration.size = (640, 480)
    camera.start_and_capture_files(str(tmp_path / "t{:d}.jpg"), num_files=2, delay=0.5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t0.jpg", "t1.jpg"]
    camera.start()
    job = camera.capture_request(wait=False)
    request = job.get_result(timeout=1.0)
    assert len(ids(request.make_array("main"))) >= 2
    request.release()


def test_errors_are_picamera2s(world: World, camera: Any) -> None:
    from picamera2 import Picamera2

    (info,) = Picamera2.global_camera_info()
    assert (info["Model"], info["Num"]) == ("imx219", 0)
    with pytest.raises(RuntimeError, match="__init__ sequence did not complete"):
        Picamera2()
    with pytest.raises(IndexError):
        Picamera2(1)
    camera.start()
    with pytest.raises(RuntimeError, match="must be stopped before configuring"):
        camera.configure("still")
    camera.close()
    world.fault("eye", "busy")
    with pytest.raises(RuntimeError, match="__init__ sequence did not complete"):
        Picamera2()
    world.fault("eye", "clear")
    world.fault("eye", "no_answer")
    assert Picamera2.global_camera_info() == []
    with pytest.raises(IndexError):
        Picamera2()
    with pytest.raises(ConfigError, match="'bus_stuck'"):
        world.fault("eye", "bus_stuck")


def test_what_a_fault_does_to_the_frames(world: World, camera: Any) -> None:
    camera.configure(
        camera.create_video_configuration(main={"size": (640, 480), "format": "BGR888"})
    )
    camera.start()

    def after(kind: str, **options: Any) -> Any:
        world.fault("eye", "clear")
        world.fault("eye", kind, **options)
        return camera.capture_array()

    plain = camera.capture_array()
    assert after("black").max() == 0
    assert after("covered").mean() < 20.0
    assert after("other_size").shape == (240, 320, 3)
    assert after("garbage").std() > 60.0
    first = after("frozen")
    world.physics.held = False
    world.physics.place(position_ned_m=(1.0, 1.0, -1.5))
    world.physics.held = True
    assert np.array_equal(camera.capture_array(), first)
    assert not np.array_equal(after("clear"), plain)
    began_s = world.t_s
    after("offset", channel="latency", amount=0.5)
    after("offset", channel="latency", amount=0.5)
    late = camera.capture_metadata()["SensorTimestamp"]
    assert world.clock is not None
    assert world.clock.now_s() - 1e-9 * late == pytest.approx(0.55, abs=0.05)
    assert world.t_s - began_s < 2.0
    dim = after("stuck", channel="light", value=0.0)
    assert dim.mean() < 10.0
    world.fault("eye", "clear")
    world.fault("eye", "dropped", rate=1.0)
    with pytest.raises(TimeoutError, match="no frame of camera 0"):
        camera.capture_array()


def test_a_longer_lens_shows_less(world: World, camera: Any) -> None:
    camera.start()

    def width_px() -> float:
        (found, *_) = Detector().detect(np.ascontiguousarray(camera.capture_array()[..., 1]))
        return float(np.linalg.norm(found.corners[0] - found.corners[1]))

    before = width_px()
    world.fault("eye", "scale", channel="focal", factor=1.1)
    assert width_px() == pytest.approx(1.1 * before, rel=0.01)


def test_over_the_socket_one_process_has_the_camera() -> None:
    with socket_directory() as directory:
        path = directory / "run" / "world.sock"
        world = World(seeing(), scene=SCENE)
        world.physics.held = True
        with (
            running(Server(world, socket_path=path, clock=SystemClock())),
            RemoteWorld(path) as first,
            RemoteWorld(path) as second,
            linux_devices(first, clock=SystemClock()),
        ):
            from picamera2 import Picamera2

            assert first.cameras().scene == SCENE
            camera = Picamera2()
            camera.start()
            request = camera.capture_request(wait=False).get_result(timeout=30.0)
            stamp_s = 1e-9 * request.get_metadata()["SensorTimestamp"]
            assert abs(SystemClock().now_s() - stamp_s) < 20.0
            assert request.make_array("main").shape == (480, 640, 4)
            with linux_devices(second, clock=SystemClock()):
                from picamera2 import Picamera2 as Second

                with pytest.raises(RuntimeError, match="did not complete"):
                    Second()
                camera.close()
                Second().close()


def test_no_numpy_without_a_camera() -> None:
    """A ship without eyes pays nothing: modules are loaded when a script asks for a name."""
    code = (
        "import sys, blimp.sim.server, blimp.ship\n"
        "from blimp.ship import Lockstep\n"
        "Lockstep('gtmab').close()\n"
        "assert 'numpy' not in sys.modules, 'numpy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120.0)
