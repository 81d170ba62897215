"""Keeps one camera open: frames at its rate, errors said once, opened again with growing pauses."""

import threading
from collections.abc import Callable

from blimp.camera.frame import Frame, Source
from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import CameraError

SILENT_S = 2.0  # without a frame: the longest exposure of a Pi's camera in video is a tenth of it
FIRST_S = 10.0  # for the first one: libcamera tunes, and a busy small board starts it slowly
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0  # doubled: a camera that is not there costs nothing
TRY_S = 0.2


class Grabber(Closing):
    """One thread that owns the camera, from its first frame to its close.

    open_source: raises CameraError. take: gets each frame, and never waits.
    problem: "" while frames come. opened: how often it was opened.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        *,
        take: Callable[[Frame], object],
        clock: Clock,
        say: Callable[[str], object],
    ) -> None:
        self._open, self._take, self._clock, self._say = open_source, take, clock, say
        self.problem = "starting"
        self.opened = self.frames = self.missed = 0
        self.last: Frame | None = None
        self.size: tuple[int, int] | None = None
        self.rate_hz = 0.0
        self._source: Source | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grab", daemon=True)
        self._thread.start()

    def still(self) -> Frame:
        """Take one picture at full resolution. Raises CameraError; frames pause for it."""
        source = self._source
        if source is None:
            raise CameraError(f"no photograph: {self.problem}")
        return source.still()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._ended.is_set():
            frames = self.frames
            try:
                self._grab()
            except CameraError as error:
                self._failed(str(error))
            except Exception as error:  # of somebody's camera library
                self._failed(f"{type(error).__name__}: {error}")
            pause_s = FIRST_PAUSE_S if self.frames > frames else min(2 * pause_s, MAX_PAUSE_S)
            self._ended.wait(pause_s)

    def _grab(self) -> None:
        source = self._open()
        try:
            self._source, self.size, self.opened = source, source.size, self.opened + 1
            silent_s, limit_s, before_s = 0.0, FIRST_S, self._clock.now_s()
            while not self._ended.is_set():
                frame = source.next_frame(TRY_S)
                now_s = self._clock.now_s()
                # A longer step was this process's own pause: a stop, a laptop's sleep.
                silent_s += min(now_s - before_s, 2.0 * TRY_S)
                before_s = now_s
                if frame is not None:
                    silent_s, limit_s = 0.0, SILENT_S
                    self._note(frame, source.size)
                elif silent_s > limit_s:
                    raise CameraError(f"no frame for {limit_s:g} s: it is frozen or disconnected")
        finally:
            self._source = None
            source.close()

    def _note(self, frame: Frame, size: tuple[int, int]) -> None:
        height, width = frame.pixels.shape[:2]
        if (width, height) != size or frame.pixels.shape[2:] != (3,):
            raise CameraError(f"its frames have {width} x {height} pixels, asked for {size}")
        before = self.last
        if before is not None and 0 < frame.sequence - before.sequence < 1000:
            self.missed += frame.sequence - before.sequence - 1
            step_s = frame.t_s - before.t_s
            if step_s > 0.0:  # over about ten frames
                self.rate_hz += 0.1 * (1.0 / step_s - self.rate_hz)
        self.last, self.frames = frame, self.frames + 1
        if self.problem:
            self.problem = ""
            self._say(f"frames of {width} x {height} pixels")
        self._take(frame)

    def _failed(self, problem: str) -> None:
        self.rate_hz = 0.0
        if problem != self.problem:  # once, however long it lasts
            self._say(problem)
        self.problem = problem

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=5.0)
