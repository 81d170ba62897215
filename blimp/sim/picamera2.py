"""A `picamera2` module whose camera is on the simulated ship.

Names, defaults, formats and errors are those of picamera2 0.3.38, as far as its examples use them.
Not simulated: raw streams, H.264, windows of a preview (all are the NULL preview), autofocus,
colour controls (they can be set, and nothing changes). Frames come by the ship's clock: in
lockstep inside `World.advance`, which a capture moves on; in real time in a thread of the camera.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from enum import Enum
from math import ceil
from types import ModuleType, SimpleNamespace
from typing import Any

from numpy.typing import NDArray

from blimp.clock import ManualClock
from blimp.errors import BlimpError
from blimp.sim import picamera2_files as files
from blimp.sim.camera.wired import Exposed, WiredCamera

Array = NDArray[Any]
_LONGEST_S = 10.0  # of ship time that a capture waits in lockstep, where a real one waits for ever
_LUX = 500.0  # of a hall whose lamps are at 1
BYTES = {"BGR888": 3, "RGB888": 3, "XBGR8888": 4, "XRGB8888": 4, "YUV420": 1}  # of a pixel
_CONTROLS: dict[str, tuple[Any, Any, Any]] = {
    "AeEnable": (False, True, True), "AnalogueGain": (1.0, 16.0, 1.0),
    "AwbEnable": (False, True, True), "Brightness": (-1.0, 1.0, 0.0), "ColourGains": (0.0, 32.0, 0),
    "Contrast": (0.0, 32.0, 1.0), "ExposureTime": (20, 1_000_000, 8_000),
    "ExposureValue": (-8.0, 8.0, 0.0), "FrameDurationLimits": (100, 1_000_000_000, 33_333),
    "FrameRate": (0.001, 1000.0, 30.0), "AeExposureMode": (0, 3, 0), "AeMeteringMode": (0, 3, 0),
    "AwbMode": (0, 7, 0), "AfMode": (0, 2, 0), "AfTrigger": (0, 1, 0), "AfSpeed": (0, 1, 0),
    "LensPosition": (0.0, 32.0, 1.0), "NoiseReductionMode": (0, 4, 0),
    "Saturation": (0.0, 32.0, 1.0),
    "ScalerCrop": ((0, 0, 64, 64), (0, 0, 65535, 65535), (0, 0, 0, 0)),
    "Sharpness": (0.0, 16.0, 1.0),
}  # fmt: skip


class Preview(Enum):
    NULL = 0
    DRM = 1
    QT = 2
    QTGL = 3


class Fields(dict[str, Any]):
    """A dictionary whose keys are attributes too, as picamera2's configurations have them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("size", "format") and "main" in self:
            return self["main"][name]
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("size", "format") and "main" in self:
            self["main"][name] = value
        else:
            self[name] = value

    def enable_raw(self, on: bool = True) -> None:
        self["raw"] = Fields(format="SBGGR10", size=self["main"]["size"]) if on else None


class Controls:
    """What is set with the next frame. `with camera.controls as c:` sets all of a block at once."""

    def __init__(self, camera: "Picamera2") -> None:
        vars(self)["_camera"] = camera

    def __setattr__(self, name: str, value: Any) -> None:
        self.set_controls({name: value})

    def __enter__(self) -> "Controls":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_controls(self, controls: dict[str, Any]) -> None:
        camera: Picamera2 = vars(self)["_camera"]
        for name, value in controls.items():
            if name not in camera.camera_controls:
                raise RuntimeError(f"Control {name} is not advertised by libcamera")
            camera._controls[name] = value


class _Job:
    """What waits for a frame: steps, each called with a frame until it says that it is done."""

    def __init__(self, camera: "Picamera2", steps: list[Any], signal: Any = None) -> None:
        self._camera, self._steps, self._signal = camera, steps, signal
        self._result: Any = None
        self.future: Future[Any] = Future()

    def execute(self, request: "CompletedRequest") -> bool:
        try:
            while self._steps:
                done, self._result = self._steps[0](request)
                if not done:
                    return False
                self._steps.pop(0)
        except Exception as error:
            self._steps = []
            self.future.set_exception(error)
        return True

    def signal(self) -> None:
        if not self.future.done():
            self.future.set_result(self._result)
        if callable(self._signal):
            self._signal(self)

    def get_result(self, timeout: float | None = None) -> Any:
        return self._camera._await(self.future, timeout)


class CompletedRequest:
    """A frame: the buffers of its streams, and its metadata."""

    def __init__(
        self, camera: "Picamera2", config: Fields, picture: Exposed, metadata: dict[str, Any]
    ) -> None:
        self.picam2, self.config, self._picture = camera, config, picture
        self._metadata = metadata
        self._buffers: dict[str, Array] = {}
        self._count, self._lock = 1, threading.Lock()

    def acquire(self) -> None:
        with self._lock:
            if self._count == 0:
                raise RuntimeError("CompletedRequest: acquiring lock with ref_count 0")
            self._count += 1

    def release(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count < 0:
                raise RuntimeError("CompletedRequest: lock now has negative ref_count")

    def get_metadata(self) -> dict[str, Any]:
        return dict(self._metadata)

    def buffer(self, name: str) -> Array:
        """The stream's array, which all uses of this frame share; drawing into it is meant."""
        stream = self.config.get(name)
        if name not in ("main", "lores") or stream is None:
            raise RuntimeError(f"Stream {name!r} is not defined")
        if name not in self._buffers:
            pixels = self._picture.pixels
            if name == "lores":
                pixels = files.resized(pixels, tuple(stream["size"]))
            self._buffers[name] = files.packed(pixels, stream["format"])
        return self._buffers[name]

    def make_array(self, name: str = "main") -> Array:
        return self.buffer(name).copy()

    def make_buffer(self, name: str = "main") -> Array:
        return self.make_array(name).ravel()

    def make_image(self, name: str = "main", width: int = 0, height: int = 0) -> Any:
        image = files.image_of(self.buffer(name), self.config[name]["format"])
        return image.resize((width or image.width, height or image.height))

    def save(
        self, name: str, file_output: Any, format: str | None = None, exif_data: Any = None
    ) -> None:
        quality = self.picam2.options.get("quality", 90)
        about = files.exif(self.picam2.place_chip, self._metadata, exif_data)
        image = files.image_of(self.buffer(name), self.config[name]["format"], yuv=True)
        files.save(image, file_output, format, quality=quality, exif=about)


class MappedArray:
    def __init__(
        self, request: CompletedRequest, stream: str, reshape: bool = True, write: bool = True
    ) -> None:
        self._array = request.buffer(stream)
        self.array = self._array if reshape else self._array.reshape(-1)
        self.array.flags.writeable = bool(write) or self.array.flags.writeable

    def __enter__(self) -> "MappedArray":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _kept(request: CompletedRequest, flush: Any = None) -> CompletedRequest:  # noqa: ARG001
    request.acquire()
    return request


def _saved(
    request: CompletedRequest, file_output: Any, name: str = "main", format: str | None = None,
    exif_data: Any = None,
) -> dict[str, Any]:  # fmt: skip
    request.save(name, file_output, format, exif_data)
    return request.get_metadata()


def _captures(take: Callable[..., Any]) -> Any:
    """Return the methods that capture with `take(request, ...)`, as it is and in another mode."""

    def capture(
        self: "Picamera2", *what: Any, wait: Any = None, signal_function: Any = None, **more: Any
    ) -> Any:
        return self._capture(lambda request: take(request, *what, **more), wait, signal_function)

    def switched(
        self: "Picamera2", camera_config: Any, *what: Any, wait: Any = None,
        signal_function: Any = None, delay: int = 0, **more: Any,  # noqa: ARG001
    ) -> Any:  # fmt: skip
        return self._capture(
            lambda request: take(request, *what, **more), wait, signal_function, camera_config
        )

    return capture, switched


def _every(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda request, names: ([make(request, n) for n in names], request.get_metadata())


class Picamera2:
    """A camera of the ship whose computer this is; `modules` makes the class for one."""

    computer: Any  # of the seam: `electrical`, `clock`, `time`, `open_cameras`

    def __init__(
        self,
        camera_num: int = 0,
        verbose_console: Any = None,  # noqa: ARG002
        tuning: Any = None,  # noqa: ARG002
        allocator: Any = None,
    ) -> None:
        self.is_open = self.started = False
        info = self.global_camera_info()[camera_num]  # IndexError without a camera, as the real one
        self.camera_idx = int(info["Num"])
        if self.camera_idx in self.computer.open_cameras:
            raise RuntimeError("Camera __init__ sequence did not complete.")
        try:
            self._camera = WiredCamera(self.computer.electrical, self.camera_idx)
        except OSError as error:
            raise RuntimeError("Camera __init__ sequence did not complete.") from error
        self.computer.open_cameras[self.camera_idx] = self
        self.is_open = True
        place = self._camera.place
        self.place_chip = place.chip
        self.sensor_resolution = place.full
        self.is_mono = False
        shortest_us = round(1e6 / place.max_hz)
        limits = {"FrameDurationLimits": (shortest_us, *_CONTROLS["FrameDurationLimits"][1:])}
        self.camera_controls = _CONTROLS | limits
        self.camera_properties = {"Model": place.chip, "PixelArraySize": place.full}
        self.options: dict[str, Any] = {"quality": 90}
        self.allocator = allocator or SimpleNamespace(deallocate=lambda _: None)
        self.pre_callback: Callable[[CompletedRequest], object] | None = None
        self.post_callback: Callable[[CompletedRequest], object] | None = None
        self.controls = Controls(self)
        self.frames = 0
        self._controls: dict[str, Any] = {}
        self._config: Fields | None = None
        self._preview = False
        self._jobs: list[_Job] = []
        self.encoders: set[Any] = set()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._run = 0  # counts starts and stops: an event of an earlier run does nothing
        self._moved = threading.Condition()
        self.preview_configuration = self.create_preview_configuration()
        self.still_configuration = self.create_still_configuration()
        self.video_configuration = self.create_video_configuration()

    @classmethod
    def global_camera_info(cls) -> list[dict[str, Any]]:
        try:
            places = cls.computer.electrical.cameras().places
        except OSError:
            places = ()
        found = []
        for number, place in enumerate(places):
            with contextlib.suppress(OSError):
                if number not in cls.computer.open_cameras and _is_dead(cls.computer, number):
                    continue
            found.append(
                {
                    "Model": place.chip, "Location": 2, "Rotation": 0, "Num": number,
                    "Id": f"/base/soc/i2c0mux/i2c@1/{place.chip}@1a",
                }
            )  # fmt: skip
        return found

    @staticmethod
    def load_tuning_file(tuning_file: Any, dir: Any = None) -> dict[str, Any]:  # noqa: ARG004
        return {}

    def __enter__(self) -> "Picamera2":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.is_open:
            return
        self.stop()
        self.is_open = False
        self.computer.open_cameras.pop(self.camera_idx, None)
        self._camera.close()

    # --- configurations ---------------------------------------------------------------------

    def _configuration(
        self, use: str, main: Any, lores: Any, given: dict[str, Any], **defaults: Any
    ) -> Fields:
        if not self.is_open:
            raise RuntimeError("Camera not opened")
        stream = Fields({"format": defaults["format"], "size": defaults["size"], **(main or {})})
        stream["size"] = tuple(stream["size"])
        stream.setdefault("preserve_ar", True)
        low = None
        if lores is not None:
            low = Fields(
                {"format": "YUV420", "size": stream["size"], "preserve_ar": False, **lores}
            )
            low["size"] = tuple(low["size"])
        controls = {"FrameDurationLimits": defaults["limits"], **given.pop("controls", {})}
        config = Fields(
            use_case=use, transform=None, colour_space=None, buffer_count=defaults["buffers"],
            queue=True, main=stream, lores=low, raw=None, controls=Fields(controls), sensor={},
            display=defaults["shown"], encode=defaults["shown"],
        )  # fmt: skip
        unknown = given.keys() - config.keys()
        if unknown:
            raise TypeError(f"unexpected keyword argument {sorted(unknown)[0]!r}")
        given.pop("raw", None)  # there is none
        config.update(given)
        return config

    def create_preview_configuration(self, main: Any = None, lores: Any = None, **k: Any) -> Fields:
        return self._configuration(
            "preview", main, lores, k, format="XBGR8888", size=(640, 480), limits=(100, 83_333),
            buffers=4, shown="main",
        )  # fmt: skip

    def create_still_configuration(self, main: Any = None, lores: Any = None, **k: Any) -> Fields:
        return self._configuration(
            "still", main, lores, k, format="BGR888", size=self.sensor_resolution,
            limits=(100, 1_000_000_000), buffers=1, shown=None,
        )  # fmt: skip

    def create_video_configuration(self, main: Any = None, lores: Any = None, **k: Any) -> Fields:
        return self._configuration(
            "video", main, lores, k, format="XBGR8888", size=(1280, 720), limits=(33_333, 33_333),
            buffers=6, shown="main",
        )  # fmt: skip

    def configure(self, camera_config: Any = None) -> None:
        if self.started:
            raise RuntimeError("Camera must be stopped before configuring")
        if camera_config is None:
            camera_config = "preview"
        if isinstance(camera_config, str):
            if camera_config not in ("preview", "still", "video"):
                raise AttributeError(f"no configuration {camera_config!r}")
            camera_config = getattr(self, f"{camera_config}_configuration")
        if not isinstance(camera_config, dict):
            raise TypeError("Invalid type for `camera_config` given")
        config = Fields(camera_config)
        for name in ("main", "lores"):
            if config.get(name) is not None:
                config[name] = self._checked(Fields(config[name]), name)
        low, main = config.get("lores"), config["main"]
        if low is not None and any(a > b for a, b in zip(low["size"], main["size"], strict=True)):
            raise RuntimeError("lores stream dimensions may not exceed main stream")
        self._config = config
        self._controls = {}
        self.set_controls(dict(config.get("controls") or {}))

    @staticmethod
    def _checked(stream: Fields, name: str) -> Fields:
        if stream.get("format") not in BYTES:
            raise RuntimeError(f"Bad format {stream.get('format')} in stream {name}")
        size = stream.get("size")
        if not isinstance(size, tuple) or len(size) != 2:
            raise RuntimeError(f"size in {name} stream should be (width, height)")
        if size[0] % 2 or size[1] % 2:
            raise RuntimeError("width and height should be even")
        channels = BYTES[stream["format"]]
        stream["stride"] = size[0] * channels
        stream["framesize"] = size[0] * size[1] * channels * (3 if channels == 1 else 2) // 2
        return stream

    def camera_configuration(self) -> dict[str, Any]:
        return self._config or {}

    def stream_configuration(self, name: str = "main") -> dict[str, Any]:
        found: dict[str, Any] = self.camera_configuration()[name]
        return found

    def set_controls(self, controls: Any) -> None:
        if not isinstance(controls, Controls):  # those are set with their assignment
            self.controls.set_controls(dict(controls))

    # --- running ------------------------------------------------------------------------------

    def start_preview(self, preview: Any = None, **_: Any) -> None:  # noqa: ARG002
        if self._preview:
            raise RuntimeError("An event loop is already running")
        self._preview = True

    def stop_preview(self) -> None:
        if not self._preview:
            raise RuntimeError("No preview specified.")
        self._preview = False

    def start(self, config: Any = None, show_preview: Any = False) -> None:  # noqa: ARG002
        if config is not None or self._config is None:
            self.configure(config or "preview")
        if self.started:
            return
        self._preview = True
        self.started = True
        self._begin()

    def _begin(self) -> None:
        assert self._config is not None
        self._run += 1
        self._camera.size = self._config["main"]["size"]
        if isinstance(self.computer.clock, ManualClock):
            self._plan(self._run)
        else:
            self._thread = threading.Thread(
                target=self._keep_running, args=(self._run,), name="sim-camera", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        if not self.started:
            return
        with self._lock:
            self.started = False
            self._run += 1
        with self._moved:
            self._moved.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _next_s(self) -> tuple[float, float]:
        """Return when the next frame can be had, and the middle of its exposure."""
        camera = self._camera
        wait_s = camera.state.latency_s
        number = ceil((self.computer.clock.now_s() - wait_s) * self._rate_hz() + 1e-6)
        t_s = number / self._rate_hz()
        return t_s + wait_s, t_s

    def _rate_hz(self) -> float:
        low, high = self._controls.get("FrameDurationLimits", (33_333, 33_333))
        wanted = 1e6 / max(1, min(max(33_333, low), high))
        wanted = float(self._controls.get("FrameRate", wanted))
        exposure_us = self._controls.get("ExposureTime", 0) or 0
        return min(wanted, self._camera.place.max_hz, 1e6 / max(1, exposure_us))

    def _plan(self, run: int) -> None:
        """In lockstep: let the next frame come by itself when the world gets there."""
        world, (at_s, t_s) = self.computer.electrical, self._next_s()
        zero_s = self.computer.clock.now_s() - world.timeline.now_s

        def tick() -> None:
            if run == self._run:
                self._plan(run)
                self._frame(t_s)

        world.timeline.at(at_s - zero_s, tick)

    def _keep_running(self, run: int) -> None:
        clock = self.computer.clock
        while run == self._run:
            at_s, t_s = self._next_s()
            with self._moved:
                self._moved.wait_for(lambda: run != self._run, max(0.0, at_s - clock.now_s()))
            if run == self._run:
                self._frame(t_s)

    def _frame(self, t_s: float) -> None:
        """Take the frame of this time, if anybody wants it, and give it to all who wait."""
        with self._lock:
            self.frames += 1
            callbacks = self.pre_callback, self.post_callback
            if not (self._jobs or self.encoders or any(callbacks)) or self._config is None:
                return
            try:
                request = self._request(t_s)
            except BlimpError as error:  # nothing can be drawn: who waits gets the reason
                while self._jobs:
                    self._jobs.pop(0).future.set_exception(error)
                return
            if request is None:
                return
            if callbacks[0] is not None:
                callbacks[0](request)
            finished: list[_Job] = []
            # A job that switches the mode leaves the next one a frame of that mode, not this one.
            while self._jobs and request.config is self._config and self._jobs[0].execute(request):
                finished.append(self._jobs.pop(0))
            if callbacks[1] is not None:
                callbacks[1](request)
            for encoder in tuple(self.encoders):
                encoder.encode(encoder.name, request)
            request.release()
        for job in finished:
            job.signal()

    def _request(self, t_s: float) -> CompletedRequest | None:
        camera, controls = self._camera, self._controls
        camera.rate_hz = self._rate_hz()
        exposure_us, gain = controls.get("ExposureTime") or 0, controls.get("AnalogueGain") or 0.0
        camera.auto = bool(controls.get("AeEnable", True))
        camera.fixed_exposure, camera.fixed_gain = bool(exposure_us), bool(gain)
        if exposure_us:
            camera.exposure_s = 1e-6 * exposure_us
        if gain:
            camera.gain = float(gain)
        try:
            picture = camera.expose(t_s)
        except OSError:  # the world does not answer: a camera without power
            return None
        if picture is None:
            return None
        assert self._config is not None
        first_row_s = t_s + 0.5 * (picture.exposure_s - camera.place.readout_s)
        metadata = {
            "SensorTimestamp": round(1e9 * first_row_s),  # when its first row is read
            "ExposureTime": round(1e6 * picture.exposure_s),
            "AnalogueGain": picture.gain,
            "DigitalGain": 1.0,
            "FrameDuration": round(1e6 / camera.rate_hz),
            "Lux": _LUX * camera.cameras.scene.light * camera.state.light,
            "ColourTemperature": 4500,
            "ColourGains": (1.8, 1.6),
            "ScalerCrop": (0, 0, *camera.place.full),
            "SensorTemperature": 30.0,
            "FocusFoM": 1000,
            "AeState": 2,
        }
        return CompletedRequest(self, self._config, picture, metadata)

    def _await(self, future: "Future[Any]", timeout: float | None) -> Any:
        """Return the result of a future; in lockstep the world moves on meanwhile."""
        clock, ship_time = self.computer.clock, self.computer.time
        if isinstance(clock, ManualClock) and threading.get_ident() == ship_time.thread:
            until_s = clock.now_s() + (_LONGEST_S if timeout is None else timeout)
            while not future.done():
                if clock.now_s() >= until_s:
                    raise TimeoutError(f"no frame of camera {self.camera_idx} in time")
                ship_time.sleep(0.005)
        return future.result(timeout)

    # --- capturing ----------------------------------------------------------------------------

    def dispatch_functions(
        self, functions: list[Any], wait: Any, signal_function: Any = None
    ) -> Any:
        """Queue steps of a job: each is called with a frame, and returns (done, result)."""
        job = _Job(self, list(functions), signal_function)
        if not self.started:
            raise RuntimeError("Camera is not started")
        with self._lock:
            self._jobs.append(job)
        if wait is None:
            wait = signal_function is None
        return job.get_result() if wait else job

    def _capture(self, take: Any, wait: Any, signal: Any, switch_to: Any = None) -> Any:
        """Capture with `take(request)`; with another configuration meanwhile, if there is one."""
        if switch_to is None:
            return self.dispatch_functions([lambda request: (True, take(request))], wait, signal)
        before = self._config

        def switch(_: CompletedRequest) -> tuple[bool, Any]:
            self._switch(switch_to)
            return True, None

        def first_of_new(request: CompletedRequest) -> tuple[bool, Any]:
            if request.config is not self._config:
                return False, None
            result = take(request)
            self._switch(before)
            return True, result

        return self.dispatch_functions([switch, first_of_new], wait, signal)

    def _switch(self, config: Any) -> None:
        """Change the configuration between two frames."""
        self.started = False
        try:
            self.configure(config)
        finally:
            self.started = True
        assert self._config is not None
        self._camera.size = self._config["main"]["size"]

    def switch_mode(self, camera_config: Any, wait: Any = None, signal_function: Any = None) -> Any:
        def switched(_: CompletedRequest) -> tuple[bool, Any]:
            self._switch(camera_config)
            return True, self._config

        return self.dispatch_functions([switched], wait, signal_function)

    @contextlib.contextmanager
    def captured_request(self, wait: Any = None, flush: Any = None) -> Iterator[CompletedRequest]:
        request = self.capture_request(wait=wait, flush=flush)
        try:
            yield request
        finally:
            request.release()

    capture_request, switch_mode_and_capture_request = _captures(_kept)
    capture_file, switch_mode_and_capture_file = _captures(_saved)
    capture_metadata, _ = _captures(CompletedRequest.get_metadata)
    capture_array, switch_mode_and_capture_array = _captures(CompletedRequest.make_array)
    capture_arrays, switch_mode_and_capture_arrays = _captures(_every(CompletedRequest.make_array))
    capture_buffer, switch_mode_and_capture_buffer = _captures(CompletedRequest.make_buffer)
    capture_buffers, switch_mode_and_capture_buffers = _captures(
        _every(CompletedRequest.make_buffer)
    )
    capture_image, switch_mode_and_capture_image = _captures(CompletedRequest.make_image)

    # --- recording ----------------------------------------------------------------------------

    def start_encoder(
        self, encoder: Any = None, output: Any = None, pts: Any = None, quality: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if encoder is None and len(self.encoders) == 1:
            encoder = next(iter(self.encoders))
        if encoder is None:
            raise RuntimeError("No encoder specified")
        if self._config is None:
            raise RuntimeError("Camera has not been configured")
        stream = name or self._config.get("encode") or "main"
        if self._config.get(stream) is None:
            raise RuntimeError(f"Encode stream {stream} was not defined")
        if output is not None:
            is_file = isinstance(output, str)
            encoder.output = files.FileOutput(output, pts=pts) if is_file else output
        encoder.name = stream
        encoder.start(quality=quality)
        with self._lock:
            self.encoders.add(encoder)

    def stop_encoder(self, encoders: Any = None) -> None:
        with self._lock:
            if encoders is None:
                encoders = set(self.encoders)
            for encoder in encoders if isinstance(encoders, list | set) else {encoders}:
                encoder.stop()
                self.encoders.discard(encoder)

    def start_recording(
        self, encoder: Any, output: Any, pts: Any = None, config: Any = None, quality: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if config is not None or self._config is None:
            self.configure(config or "video")
        self.start_encoder(encoder, output, pts=pts, quality=quality, name=name)
        self.start()

    def stop_recording(self) -> None:
        self.stop()
        self.stop_encoder()

    def start_and_capture_files(
        self, name: str = "image{:03d}.jpg", initial_delay: float = 1,
        preview_mode: Any = "preview", capture_mode: Any = "still", num_files: int = 1,
        delay: float = 1, exif_data: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        self.stop()
        self.configure(preview_mode)
        self.start()
        for number in range(num_files):
            self.computer.time.sleep(delay if number else initial_delay)
            path = name.format(number)
            self.switch_mode_and_capture_file(capture_mode, path, exif_data=exif_data)
        self.stop()

    def start_and_capture_file(
        self, name: str = "image.jpg", delay: float = 1, **modes: Any
    ) -> None:
        self.start_and_capture_files(name, delay, num_files=1, **modes)


def _is_dead(computer: Any, number: int) -> bool:
    """Whether the camera's sensor does not answer; it is opened and closed for that."""
    dead: bool = computer.electrical.camera(number, 1e12).state.no_answer
    computer.electrical.camera_close(number)
    return dead


def modules(computer: Any) -> dict[str, ModuleType]:
    """Return the modules of one simulated computer, by name."""
    bound = type("Picamera2", (Picamera2,), {"computer": computer, "__module__": __name__})
    modes = SimpleNamespace(Off=0, Fast=1, HighQuality=2, Minimal=3, Manual=0, Auto=1, Continuous=2)
    controls = SimpleNamespace(
        AfModeEnum=modes, NoiseReductionModeEnum=modes, AwbModeEnum=modes, AeExposureModeEnum=modes
    )
    encoders = {
        one.__name__.lstrip("_"): one
        for one in (files._Encoder, files.JpegEncoder, files.MJPEGEncoder, files.H264Encoder)
    }
    outputs = {one.__name__.lstrip("_"): one for one in (files._Output, files.FileOutput)}
    contents: dict[str, dict[str, Any]] = {
        "picamera2": {"Picamera2": bound, "Preview": Preview, "MappedArray": MappedArray,
                      "CompletedRequest": CompletedRequest,
                      "Controls": Controls, "CameraConfiguration": Fields},
        "picamera2.controls": {"Controls": Controls},
        "picamera2.encoders": {**encoders, "Quality": files.Quality},
        "picamera2.outputs": outputs,
        "picamera2.request": {"MappedArray": MappedArray, "CompletedRequest": CompletedRequest},
        "picamera2.allocators": {"PersistentAllocator": lambda: SimpleNamespace(
            deallocate=lambda _: None)},
        "libcamera": {"controls": controls, "Transform": dict},
    }  # fmt: skip
    made = {name: ModuleType(name, __doc__) for name in contents}
    for name, content in contents.items():
        vars(made[name]).update(content)
    for name in ("encoders", "outputs", "request", "allocators"):
        setattr(made["picamera2"], name, made[f"picamera2.{name}"])
    return made
