"""A Raspberry Pi's camera, by picamera2's interface; in a simulation by that of `blimp.sim`.

The middle of the exposure: picamera2 says that `SensorTimestamp` is when the first pixel was read,
the end of its exposure (examples/timestamp_capture.py). With a rolling shutter the middle row is
later by half of the time that the sensor's mode takes to read a frame, which is the shortest time
from one frame to the next that libcamera offers for it.
"""

from typing import Any

from blimp.camera.frame import Frame
from blimp.errors import CameraError

RGB = "BGR888"  # picamera2's name of the format whose arrays are red, green, blue
GLOBAL = {"imx296"}  # sensors that expose all rows at once
STILL_S = 10.0  # mode switch, exposure of a dark room, switch back
CURE = "sudo apt install python3-picamera2, and make the environment with --system-site-packages"


class PicameraSource:
    """The camera of this number, opened. Raises CameraError if it is missing or in use.

    simulated: what the caller has installed; another picamera2 than that is refused.
    """

    def __init__(
        self, *, size: tuple[int, int], rate_hz: float, simulated: bool, number: int = 0
    ) -> None:
        try:
            from picamera2 import Picamera2
        except ImportError as error:
            raise CameraError(f"picamera2 cannot be loaded ({error}): {CURE}") from error
        if Picamera2.__module__.startswith("blimp.") != simulated:
            found = "a simulated" if not simulated else "a real"
            raise CameraError(f"{found} camera stands where the other was asked for: refused")
        self.size = size
        self._name = f"camera {number}"
        self._job: Any = None
        self._sequence, self._last_ns = 0, 0
        self._camera: Any = None
        try:
            self._camera = camera = Picamera2(number)
            configuration = camera.create_video_configuration(
                main={"size": size, "format": RGB}, controls={"FrameRate": rate_hz}
            )
            camera.configure(configuration)
            is_global = camera.camera_properties["Model"] in GLOBAL
            limits_us = camera.camera_controls["FrameDurationLimits"]
            self._readout_s = 0.0 if is_global else 1e-6 * limits_us[0]
            camera.start()
        except Exception as error:  # IndexError without a camera, RuntimeError if it is in use
            self.close()
            raise CameraError(f"{self._name} cannot be opened: {error or type(error)}") from error

    def next_frame(self, timeout_s: float) -> Frame | None:
        """Return the next frame; a question that is not answered in time stays asked."""
        try:
            self._job = self._job or self._camera.capture_request(wait=False)
            request = self._job.get_result(timeout=timeout_s)
        except TimeoutError:
            return None
        except Exception as error:
            raise CameraError(f"{self._name}: {error}") from error
        self._job = None
        return self._frame(request)

    def still(self) -> Frame:
        camera = self._camera
        try:
            configuration = camera.create_still_configuration(main={"format": RGB})
            job = camera.switch_mode_and_capture_request(configuration, wait=False)
            return self._frame(job.get_result(timeout=STILL_S))
        except Exception as error:
            raise CameraError(f"{self._name}: no photograph: {error or type(error)}") from error

    def _frame(self, request: Any) -> Frame:
        try:
            about = request.get_metadata()
            pixels = request.make_array("main")  # a copy: the buffer goes back to the camera
        finally:
            request.release()
        at_ns, exposure_s = int(about["SensorTimestamp"]), 1e-6 * about.get("ExposureTime", 0)
        duration_ns = 1000 * about.get("FrameDuration", 0)
        step = round((at_ns - self._last_ns) / duration_ns) if duration_ns and self._last_ns else 1
        self._sequence, self._last_ns = self._sequence + max(1, step), at_ns
        return Frame(
            sequence=self._sequence,
            t_s=1e-9 * at_ns - 0.5 * exposure_s + 0.5 * self._readout_s,
            exposure_s=exposure_s,
            gain=float(about.get("AnalogueGain", 1.0)),
            pixels=pixels,
        )

    def close(self) -> None:
        camera, self._camera = self._camera, None
        if camera is not None:
            camera.close()  # stops it first
