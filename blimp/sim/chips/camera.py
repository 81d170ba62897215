"""A camera over a floor of tags, and the process that finds the ship in its pictures.

No picture is drawn: it makes the errors that such positions have. Measured on rendered pictures by
`python -m benchmarks.tags`, which has them drawn and looked at. Pictures are drawn by
`blimp.sim.camera`, in the process that opens the camera; here is where it sits, its lens, and what
is wrong with it. Source of sizes and rates: raspberrypi.com/documentation/accessories/camera.html,
the mode that sees the whole field at half the resolution; a rolling shutter reads such a frame in
1 / its highest rate.
"""

import tomllib
from collections.abc import Callable
from math import cos, isfinite, radians, sin, tan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from blimp.airframe import CameraRow
from blimp.rotation import yaw_of
from blimp.sim.chips.chip import Fitting, MessageChip, clamp
from blimp.sim.electrical import CameraPlace, CameraState
from blimp.types import CameraPose

LATENCY_S = 0.1  # from the middle of the exposure to the datagram
_NOISE = (0.003, 0.003)  # m, and m a metre of height: corners, tags a few millimetres off
_YAW_NOISE_RAD = 0.003
_FOCAL, _MOUNT_M, _MOUNT_RAD = 0.01, 0.01, radians(1.0)  # within which each ship's own are wrong
_SEES_M = 6.0  # higher, a tag of 20 cm is too small
_DARK = 0.1  # of the light: the longest exposure and gain make that up, and no less
_GARBAGE_BYTES = 40
_FRAME_S = 0.05  # from the middle of the exposure to the frame: a queue of two at 30 Hz


class _Model(NamedTuple):
    full: tuple[int, int]  # pixels
    max_hz: float
    is_global: bool = False


_MODELS = {
    "imx219": _Model((3280, 2464), 41.85),
    "imx296": _Model((1456, 1088), 60.3, is_global=True),
    "imx708": _Model((4608, 2592), 56.03),
    "ov5647": _Model((2592, 1944), 46.34),
}

Look = Callable[[float], CameraPose]


class Camera(MessageChip):
    """Channels: x, y, z in m north, east and down of the pad, yaw in rad; light and focal length as
    shares of what they should be; latency in s; blind, the height above the floor in m below which
    no tag is in view.

    look: what finds the ship in a picture of this time, in place of the errors below.
    """

    KINDS = MessageChip.KINDS | {"covered", "black", "other_size", "busy", "dropped"}
    CHANNELS = ("x", "y", "z", "yaw", "light", "focal", "latency", "blind")

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self.place = _place(fitting)
        self._period_s = 1.0 / fitting.device.rate_hz
        self._stand_m = fitting.airframe.stand_m
        self._has_map = bool(fitting.device.options.get("tags", ""))
        draw = fitting.random("built").uniform
        self._scale = 1.0 + draw(-_FOCAL, _FOCAL)
        self._arm_m = complex(draw(-_MOUNT_M, _MOUNT_M), draw(-_MOUNT_M, _MOUNT_M))
        self._turned_rad = draw(-_MOUNT_RAD, _MOUNT_RAD)
        self._boot_id = f"{fitting.random('boot').getrandbits(64):016x}"
        self._count = 0
        self._phase_s = self.random.uniform(0.0, self._period_s)
        self._frozen_pose: CameraPose | None = None
        self.look: Look = self._guess
        self._plan()

    def _plan(self) -> None:
        self.timeline.at(self._phase_s + self._count * self._period_s, self._capture)
        self._count += 1

    def _capture(self) -> None:
        self._plan()
        faults, now_s = self.faults, self.timeline.now_s
        is_silent = faults.no_answer or faults.busy or faults.other_size
        if is_silent or (faults.dropped and faults.random.random() < faults.dropped):
            return
        if faults.garbage:
            self.send(faults.random.randbytes(_GARBAGE_BYTES))
            return
        latency_s = max(0.0, faults.measure("latency", LATENCY_S, now_s))
        pose = self._seen(now_s)
        if faults.frozen:
            pose = self._frozen_pose = self._frozen_pose or pose
        else:
            self._frozen_pose = None
        pose = msgspec.structs.replace(
            pose, boot_id=self._boot_id, sequence=self._count, exposed_s=now_s
        )
        self.send(msgspec.msgpack.encode(pose), after_s=latency_s)

    def _seen(self, now_s: float) -> CameraPose:
        measure = self.faults.measure
        height_m = self._stand_m - self.truth.position_ned_m[2]
        dark = self.faults.covered or self.faults.black
        if dark or not measure("light", 1.0, now_s) > _DARK:
            return _nothing("too dark")
        if height_m < measure("blind", 0.0, now_s):
            return _nothing("no tag in view")
        pose = self.look(now_s)
        if pose.position_ned_m is None or not self.faults.altered:
            return pose
        north, east, down = pose.position_ned_m
        return msgspec.structs.replace(
            pose,
            position_ned_m=(
                measure("x", north, now_s), measure("y", east, now_s),
                # The floor is where the tags are.
                measure("z", down - self._stand_m, now_s) + self._stand_m,
            ),
            yaw_rad=measure("yaw", pose.yaw_rad, now_s),
        )  # fmt: skip

    def state(self) -> CameraState:
        """What is wrong with its frames, of which positions know nothing."""
        faults, now_s = self.faults, self.timeline.now_s
        return CameraState(
            no_answer=faults.no_answer,
            frozen=faults.frozen,
            garbage=faults.garbage,
            covered=faults.covered,
            black=faults.black,
            other_size=faults.other_size,
            busy=faults.busy,
            light=clamp(faults.measure("light", 1.0, now_s), 0.0, 100.0),
            focal=clamp(faults.measure("focal", 1.0, now_s), 0.1, 10.0),
            latency_s=clamp(faults.measure("latency", _FRAME_S, now_s), 0.0, 10.0),
            dropped=faults.dropped,
        )

    def _guess(self, now_s: float) -> CameraPose:
        north, east, down = self.truth.position_ned_m
        height_m = self._stand_m - down
        if not self._has_map or height_m > _SEES_M or not isfinite(north + east):
            return _nothing("no tag in view")
        yaw = yaw_of(self.truth.attitude)
        gauss = self.random.gauss
        # A longer lens makes tags larger, and the floor nearer.
        scale = self._scale / clamp(self.faults.measure("focal", 1.0, now_s), 0.1, 10.0)
        sigma_m = _NOISE[0] + _NOISE[1] * height_m
        arm = self._arm_m * complex(cos(yaw), sin(yaw))
        return CameraPose(
            boot_id="",
            sequence=0,
            exposed_s=0.0,
            position_ned_m=(
                north + arm.real + gauss(0.0, sigma_m),
                east + arm.imag + gauss(0.0, sigma_m),
                self._stand_m - height_m * scale + gauss(0.0, sigma_m),
            ),
            yaw_rad=yaw + self._turned_rad + gauss(0.0, _YAW_NOISE_RAD),
            accuracy_m=(sigma_m**2 + _MOUNT_M**2) ** 0.5,
            bias_m=_MOUNT_M,
            yaw_accuracy_rad=_MOUNT_RAD,
            tags=4,
        )


def _nothing(reason: str) -> CameraPose:
    return CameraPose(boot_id="", sequence=0, exposed_s=0.0, reason=reason)


def _place(fitting: Fitting) -> CameraPlace:
    """Return where a row's camera sits, and its lens. Raises ValueError for what cannot be read."""
    device = fitting.device
    row, model = msgspec.convert(device.options, CameraRow), _MODELS[device.chip]
    focal = 0.5 * row.width / tan(radians(0.5 * row.horizontal_fov_deg))
    lens: dict[str, Any] = {"fx": focal, "fy": focal}
    if row.lens:
        try:
            lens = tomllib.loads(Path(row.lens).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"lens {row.lens}: {error}") from error
    width, height = lens.get("width", row.width), lens.get("height", row.height)
    return CameraPlace(
        name=device.name,
        chip=device.chip,
        full=model.full,
        readout_s=0.0 if model.is_global else 1.0 / model.max_hz,
        max_hz=model.max_hz,
        width=width,
        height=height,
        fx=lens["fx"],
        fy=lens["fy"],
        cx=lens.get("cx", 0.5 * (width - 1)),
        cy=lens.get("cy", 0.5 * (height - 1)),
        distortion=tuple(lens.get(key, 0.0) for key in ("k1", "k2", "p1", "p2", "k3")),
        position_m=row.position_m,
        rotation_deg=(row.roll_deg, row.pitch_deg, row.yaw_deg),
        stand_m=fitting.airframe.stand_m,
    )
