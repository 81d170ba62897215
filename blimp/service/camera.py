"""The camera's process: it owns the camera, and puts together what is done with its frames.

Nobody waits for it. It is niced, takes one core at most, and goes on without a camera, a broker or
a flight process: what it lacks it says once, and tries again.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from functools import partial
from math import atan2, degrees
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from blimp import airframe as airframes
from blimp.ability import camera_of
from blimp.airframe import Airframe, CameraRow, Device
from blimp.clock import Clock, SystemClock
from blimp.config import (
    broker_url_from_environment,
    check_broker_is_closed,
    notify_address,
    photo_directory,
    read_signing_keys,
    signing_keys_from_environment,
    vehicle_name,
)
from blimp.errors import ConfigError
from blimp.link.camera_control import CameraStatus, ControlServer
from blimp.link.paths import own_paths
from blimp.service import notify
from blimp.service.compose import flown_airframe, machine

if TYPE_CHECKING:
    from blimp.camera.frame import Source
    from blimp.camera.grabber import Grabber
    from blimp.camera.look import Look
    from blimp.camera.photograph import StillSource
    from blimp.camera.picture import Picturer
    from blimp.camera.pipeline import Pipeline, Step
    from blimp.service.compose import OnStop

NICE = 10
PICTURE_S = 0.5  # for a frame that nobody has seen
DEFAULT = CameraRow(width=640, height=480)  # of a laptop, whose airframe has no camera
LAPTOP_HZ = 15.0


class CameraOptions(msgspec.Struct, frozen=True, kw_only=True):
    """device: of V4L2, which takes the place of the airframe's camera. say: one line a call.

    broker: that of BLIMP_BROKER_URL by default; without one no page has the picture.
    """

    airframe: str
    vehicle: str | None = None
    runtime_dir: Path | None
    simulated: bool
    device: str | None = None
    broker: str | None = None
    signing_key_file: Path | None = None
    say: Callable[[str], object]


def watch(options: CameraOptions, *, on_stop: OnStop) -> None:
    """Run the camera's process until it is stopped.

    Raises ConfigError if there is no camera to own, or another process owns it.
    """
    paths = own_paths(options.runtime_dir)
    airframe = flown_airframe(paths) or airframes.load(options.airframe)
    row = camera_of(airframe)
    if row is None and options.device is None:
        raise ConfigError(
            f"airframe {airframe.name} has no camera: add its [[device]], or give --device PATH"
        )
    wake, waker = os.pipe()

    def stop() -> None:
        os.write(waker, b"x")

    on_stop(stop)
    _stand_back()
    from blimp.camera.grabber import Grabber
    from blimp.camera.look import Look
    from blimp.camera.picture import Picturer
    from blimp.camera.pipeline import Pipeline
    from blimp.camera.position import camera_row, to_socket

    found = camera_row(airframe)
    asked = DEFAULT if found is None else found[1]
    clock = SystemClock()
    look = Look()
    steps: list[Step] = [look]
    if row is not None:
        steps += _found(airframe, row, asked, to_socket(paths.camera), clock, say=options.say)
    with contextlib.ExitStack() as exits:
        exits.enter_context(machine(simulated=options.simulated, paths=paths, clock=clock))
        pipeline = exits.enter_context(Pipeline(steps, clock=clock, say=options.say))
        grabber = exits.enter_context(
            Grabber(
                partial(
                    _open, options, asked or DEFAULT, LAPTOP_HZ if row is None else row.rate_hz
                ),
                take=pipeline.offer,
                clock=clock,
                say=options.say,
            )
        )
        picturer = Picturer(
            lambda after, wait_s: pipeline.newer(after, timeout_s=wait_s),
            lambda: pipeline.seen,
            view=None if found is None else _view(asked),
        )
        name = options.device or (row.chip if row is not None else "")
        answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "status": lambda _: _status(name, options.simulated, grabber, pipeline, look, clock),
            "picture": lambda about: picturer.picture(int(about.get("after", -1)), PICTURE_S),
            "photo": photograph_answer(grabber),
        }
        exits.enter_context(ControlServer(paths.camera_control, answers))
        _send_pictures(options, airframe, picturer, exits, clock)
        notify.send(notify.READY, address=notify_address())
        select.select([wake], [], [])


def _found(
    airframe: Airframe,
    row: Device,
    asked: CameraRow,
    send: Callable[[bytes], object],
    clock: Clock,
    *,
    say: Callable[[str], object],
) -> list[Step]:
    """Return the steps that tell the flight process where the ship is, and what is in the picture.

    If lens, map or detector cannot be read, the camera has other uses.
    """
    from blimp.camera.position import TagPosition
    from blimp.camera.sees import things

    period_s = 1.0 / row.rate_hz
    position = TagPosition(
        asked, stand_m=airframe.stand_m, send=send, period_s=period_s, budget_s=period_s
    )
    if asked.tags and position.reason:
        say(f"no position from tags: {position.reason}")
    try:
        return [position, *things(asked, send=send, clock=clock, period_s=period_s)]
    except ConfigError as error:
        say(f"nothing to follow: {error}")
        return [position]


def _view(asked: CameraRow) -> dict[str, float] | None:
    """Return what a page needs to draw a horizon; None if the lens's file cannot be read."""
    from blimp.camera.position import lens_of

    try:
        lens = lens_of(asked)
    except ConfigError:
        return None
    return {
        "horizontal_fov_deg": degrees(2.0 * atan2(0.5 * lens.width, lens.fx)),
        "roll_deg": asked.roll_deg, "pitch_deg": asked.pitch_deg, "yaw_deg": asked.yaw_deg,
    }  # fmt: skip


def photograph_answer(camera: StillSource) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what takes photographs, into the directory of the ship that asks."""
    from blimp.camera.photograph import Photographer
    from blimp.camera.store import PhotoStore

    made: dict[str, Photographer] = {}
    making = threading.Lock()

    def answer(arguments: dict[str, Any]) -> dict[str, Any]:
        ship = vehicle_name(str(arguments.get("ship", "")), where="photo: ship")
        with making:
            if ship not in made:
                store = PhotoStore(photo_directory() / ship)
                store.open()
                made[ship] = Photographer(source=camera, store=store)
        return made[ship].answer(arguments)

    return answer


def _send_pictures(
    options: CameraOptions,
    airframe: Airframe,
    picturer: Picturer,
    exits: contextlib.ExitStack,
    clock: Clock,
) -> None:
    """Give pictures to who asks for them through the broker, if there is one."""
    broker = options.broker or broker_url_from_environment()
    if broker is None:
        return
    file = options.signing_key_file
    keys = signing_keys_from_environment() if file is None else read_signing_keys(file)
    check_broker_is_closed(broker, keys)
    from blimp.link.picture import PictureSender
    from blimp.link.telemetry import signer_of

    vehicle = vehicle_name(options.vehicle or airframe.name, where="--vehicle")
    exits.enter_context(
        PictureSender(broker, vehicle, take=picturer.picture, signer=signer_of(keys), clock=clock)
    )


def _open(options: CameraOptions, asked: CameraRow, rate_hz: float) -> Source:
    size = (asked.width, asked.height)
    if options.device is not None:
        from blimp.camera.v4l2 import V4l2Source

        return V4l2Source(options.device, size=size, rate_hz=rate_hz)
    from blimp.camera.picamera import PicameraSource

    return PicameraSource(size=size, rate_hz=rate_hz, simulated=options.simulated)


def _status(
    name: str, simulated: bool, grabber: Grabber, pipeline: Pipeline, look: Look, clock: Clock
) -> CameraStatus:
    last = grabber.last
    failing = next((f"{n}: {s.problem}" for n, s in pipeline.steps.items() if s.problem), "")
    tags = pipeline.seen.get("tags")
    shapes = tags.content.get("shapes", ()) if tags is not None else ()
    return CameraStatus(
        camera=name,
        simulated=simulated,
        problem=grabber.problem or look.problem or failing,
        size=grabber.size,
        rate_hz=round(grabber.rate_hz, 1),
        frames=grabber.frames,
        missed=grabber.missed,
        opened=grabber.opened,
        age_s=None if last is None else round(clock.now_s() - last.t_s, 3),
        exposure_s=0.0 if last is None else last.exposure_s,
        gain=1.0 if last is None else last.gain,
        brightness=look.brightness,
        focus=look.focus,
        tags=None if tags is None else len(shapes),
        steps=dict(pipeline.steps),
    )


def _stand_back() -> None:
    """Let everything else on this computer go first, and leave it the other cores."""
    with contextlib.suppress(OSError):  # systemd has done it, and lets nobody change it
        os.nice(NICE)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
