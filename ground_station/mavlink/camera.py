"""The ship's camera as a component of MAVLink's camera protocol, as far as stations ask for it.

Source: MAVLink's common message set and its page "Camera Protocol v2". Photographs are the action
`photo`; the files come by `ground photo`. What the protocol has and a ship does not say is NaN, or
"not supported": how full its disk is, zoom, focus. There is no video stream: the page has single
pictures, one after the other, and VIDEO_STREAM_TYPE has nothing like it.
"""

import math
from collections.abc import Callable
from typing import Any

from blimp.ability import camera_of
from blimp.actions import PHOTO_S
from blimp.airframe import Device
from blimp.errors import LinkError
from blimp.tasks.reply import Reply
from ground_station.mavlink.system import DENIED, OK, Answer, System
from ground_station.mavlink.telemetry import place_of, rotation
from ground_station.mavlink.wire import CAMERA, Message, message, number_of

TYPE_CAMERA, INVALID, ACTIVE = 30, 8, 4  # MAV_TYPE, MAV_AUTOPILOT, MAV_STATE
CAPTURES_IMAGES = 2  # CAMERA_CAP_FLAGS
IMAGE_MODE = 0.0  # CAMERA_MODE
NOT_SUPPORTED = 3  # STORAGE_STATUS: its capacities are not known
IDLE, INTERVAL = 0, 2  # of CAMERA_CAPTURE_STATUS.image_status
BEAT_S = 1.0
LOOK_S = 0.5  # between two questions whether a photograph that is due was taken
# After it is due: a worker that was killed has its task again by then.
OVERDUE_S = PHOTO_S + 45.0


class CameraComponent:
    """The camera of one system. Used in its event loop."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._due_s = 0.0
        self._count = 0  # photographs that were asked for here
        self._every_s = 0.0
        self._next = ""  # the command of a series' photograph that has not been taken yet
        self.messages: dict[int, Callable[[], Message]] = {
            number_of("camera_information"): self._information,
            number_of("camera_settings"): self._settings,
            number_of("storage_information"): self._storage,
            number_of("camera_capture_status"): self._status,
        }

    @property
    def chip(self) -> str:
        """The chip of the ship's camera, "" for a ship without one."""
        return "" if (row := self._row) is None else row.chip

    @property
    def _row(self) -> Device | None:
        airframe = self._system.airframe
        return None if airframe is None else camera_of(airframe)

    def tell(self) -> None:
        """Send its heartbeat, if it is due and there is a camera."""
        now_s = self._system.ship.now_s
        if now_s >= self._due_s and self.chip:
            self._due_s = now_s + BEAT_S
            beat = message(
                "heartbeat", type=TYPE_CAMERA, autopilot=INVALID, system_status=ACTIVE,
                mavlink_version=3, base_mode=0, custom_mode=0,
            )  # fmt: skip
            self._system.send(beat, component=CAMERA)

    def noted(self, name: str, arguments: dict[str, Any], reply: Reply) -> None:
        """Tell every station of a photograph that was asked for, and of its interval."""
        if name == "photo_stop":
            self._every_s, self._next = 0.0, ""
            self._system.send(self._status(), component=CAMERA)
        if name == "photo":
            self._tell_of(reply, arguments.get("every_s", 0.0))
            if self._next:
                self._system.start(self._follow(self._next, self._every_s))

    def _tell_of(self, reply: Reply, every_s: float) -> None:
        """Tell of one photograph, and whether another one follows it."""
        result = reply.result if reply.state == "SUCCESS" else None
        result = result if isinstance(result, dict) else {}
        self._next = str(result.get("next", ""))
        self._every_s = every_s if self._next else 0.0
        self._count += 1
        is_taken = reply.state == "SUCCESS" and "reason" not in result
        self._system.send(self._captured(result, is_taken=is_taken), component=CAMERA)
        self._system.send(self._status(), component=CAMERA)

    async def _follow(self, id: str, every_s: float) -> None:
        """Tell of each photograph of a series, until its end or another series."""
        ship = self._system.ship
        due_s = ship.now_s + every_s
        late_s = due_s + OVERDUE_S
        await ship.sleep(every_s)
        while id == self._next and ship.now_s < late_s:
            try:
                reply = await ship.result(id)
            except LinkError:
                late_s = ship.now_s + OVERDUE_S  # it is taken all the same
                reply = None
            if reply is None or reply.state == "TIMEOUT":
                await ship.sleep(LOOK_S)
            elif id == self._next:
                self._tell_of(reply, every_s)
                id, due_s = self._next, due_s + every_s
                late_s = max(due_s, ship.now_s) + OVERDUE_S
                await ship.sleep(max(0.0, due_s - ship.now_s))

    def set_mode(self, mode: float) -> Answer:
        """Answer SET_CAMERA_MODE."""
        return OK if mode == IMAGE_MODE else (DENIED, f"camera mode {mode:g}, must be 0, images")

    def _boot_ms(self) -> int:
        return 0 if self._system.seen is None else self._system.seen.boot_ms

    def _information(self) -> Message:
        options = {} if (row := self._row) is None else row.options
        width, height = (int(options.get(side, 0)) for side in ("width", "height"))
        return message(
            "camera_information", time_boot_ms=self._boot_ms(), vendor_name=_letters("blimp"),
            model_name=_letters(self.chip), firmware_version=0, focal_length=math.nan,
            sensor_size_h=math.nan, sensor_size_v=math.nan, resolution_h=width,
            resolution_v=height, lens_id=0, flags=CAPTURES_IMAGES, cam_definition_version=0,
            cam_definition_uri=b"",
        )  # fmt: skip

    def _settings(self) -> Message:
        return message(
            "camera_settings", time_boot_ms=self._boot_ms(), mode_id=int(IMAGE_MODE),
            zoomLevel=math.nan, focusLevel=math.nan,
        )  # fmt: skip

    def _storage(self) -> Message:
        return message(
            "storage_information", time_boot_ms=self._boot_ms(), storage_id=1, storage_count=1,
            status=NOT_SUPPORTED, total_capacity=0.0, used_capacity=0.0, available_capacity=0.0,
            read_speed=0.0, write_speed=0.0,
        )  # fmt: skip

    def _status(self) -> Message:
        return message(
            "camera_capture_status", time_boot_ms=self._boot_ms(),
            image_status=INTERVAL if self._every_s else IDLE, video_status=0,
            image_interval=self._every_s, recording_time_ms=0, available_capacity=0.0,
            image_count=self._count,
        )  # fmt: skip

    def _captured(self, result: dict[str, Any], *, is_taken: bool) -> Message:
        seen = self._system.seen
        place = dict.fromkeys(("lat", "lon", "alt", "relative_alt"), 0)
        q = [1.0, 0.0, 0.0, 0.0]
        if seen is not None:
            place, q = place_of(seen), rotation(seen)
        return message(
            "camera_image_captured", time_boot_ms=self._boot_ms(),
            time_utc=int(1e6 * result.get("taken_s", 0.0)), camera_id=0, **place, q=q,
            image_index=self._count - 1, capture_result=int(is_taken),
            file_url=str(result.get("name", "")).encode(),
        )  # fmt: skip


def _letters(text: str) -> list[int]:
    return list(text.encode("ascii", "replace")[:32].ljust(32, b"\0"))
