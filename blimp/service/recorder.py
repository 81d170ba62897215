"""The recorder: a process of its own that turns the flight process's ring into logs.

It can die at any time: the ring keeps what it has not stored yet, for its successor. It never ends
by itself because of a disk: it says so, and tries again.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.config import notify_address
from blimp.errors import BlimpError, ConfigError, LogError
from blimp.link.camera_control import ask
from blimp.link.paths import own_paths
from blimp.recording.chain import continued
from blimp.recording.directory import MIN_FREE_BYTES, LogDirectory
from blimp.recording.log_file import LogFile
from blimp.recording.ring import SIZE, Ring
from blimp.recording.tape import Kind, Session, picture_record, truth_of
from blimp.recording.topics import CAMERA, WARNING, Message, Translator
from blimp.service import notify
from blimp.sim.remote import RemoteWorld
from blimp.types import VehicleState

if TYPE_CHECKING:
    from blimp.service.compose import OnStop
    from blimp.service.logs.live_view import LiveView

POLL_S = 0.1
FLUSH_S = 1.0  # what a power cut costs at the most
LAST_S = 0.3  # at its end it waits so long for the flight process's last words
UNREADABLE_S = 1.0  # a record that is not whole by then never will be
RETRY_S = 5.0
IDLE_S = 60.0  # on the ground for longer: a cycle in 10 s is enough
IDLE_PERIOD_S = 10.0
PICTURE_S = 2.0  # between pictures: at most 30 of 32 KiB a minute, usually of 8
PICTURE_WAIT_S = 0.2  # for one: the ring holds 14 s
NO_PICTURE_S = 10.0  # until a camera that gave none is asked again
FILES = 8  # a log has at most this share of the bound, so that some are left when one goes
NICE = 10


class RecorderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """max_bytes: of all logs in the directory. seed, wind_mps: of the simulated world.

    live_port: of this machine, for Foxglove's viewer; None for none.
    """

    runtime_dir: Path | None
    directory: Path
    max_bytes: int
    seed: int | None = None
    wind_mps: float | None = None
    live_port: int | None = None


def record(options: RecorderOptions, *, on_stop: OnStop) -> None:
    """Record until it is stopped. Raises ConfigError if the runtime directory is not usable."""
    paths = own_paths(options.runtime_dir)
    wake, waker = os.pipe()

    def stop() -> None:
        os.write(waker, b"x")

    on_stop(stop)
    with contextlib.suppress(OSError):  # systemd has done it, and lets nobody change it
        os.nice(NICE)
    clock = SystemClock()
    with Ring(paths.tape) as ring, contextlib.ExitStack() as exits:
        notify.send(notify.READY, address=notify_address())
        said = ""
        while isinstance(directory := _directory(options), str):
            if directory != said:  # once, however long it lasts
                _say(f"{directory}; not recording, trying again every {RETRY_S:.0f} s")
                said = directory
            if select.select([wake], [], [], RETRY_S)[0]:
                return
        live = exits.enter_context(_live_view(options.live_port))
        recorder = Recorder(ring, directory, clock=clock, options=options, live=live)
        world = exits.enter_context(RemoteWorld(paths.world))  # connects when it is asked
        while not select.select([wake], [], [], POLL_S)[0]:
            recorder.poll()
            if recorder.is_simulated:
                with contextlib.suppress(OSError):  # its world has died, or starts again
                    recorder.take_truth(world.truth())
            recorder.take_picture(paths.camera_control)
        recorder.finish()


def _directory(options: RecorderOptions) -> LogDirectory | str:
    """Return the directory of the logs; why not, if it cannot be used now."""
    try:
        return LogDirectory(options.directory, max_bytes=options.max_bytes)
    except BlimpError as error:
        return str(error)


@contextlib.contextmanager
def _live_view(port: int | None) -> Iterator[LiveView | None]:
    """Yield the live view, None if none is asked for or it cannot be started."""
    if port is None:
        yield None
        return
    from blimp.service.logs.live_view import LiveView

    try:
        view = LiveView(port)
    except ConfigError as error:
        _say(f"{error}; recording without it")
        yield None
        return
    with view:
        _say(f"live for Foxglove: ws://127.0.0.1:{view.port}")
        yield view


class Recorder:
    """Reads a ring, writes logs. `poll` from time to time, `finish` at the end."""

    def __init__(
        self,
        ring: Ring,
        directory: LogDirectory,
        *,
        clock: Clock,
        options: RecorderOptions,
        live: LiveView | None = None,
    ) -> None:
        self._live = live
        self._ring, self._directory, self._clock = ring, directory, clock
        self._options = options
        self._log: LogFile | None = None
        self._translator: Translator | None = None
        self._dropped = ring.dropped
        self._lost = 0  # records that came while the disk took none
        self._flushed_s = self._read_s = clock.now_s()
        self._retry_s = self._picture_s = 0.0
        self._wrong = ""  # what was said to be wrong, until something is on the disk again
        self._active_s: float | None = None  # when the ship was armed last, in its time
        self._kept_s: dict[str, float] = {}  # of an idle ship, by topic
        self._is_idle = self._is_new_flight = False
        if kept := ring.kept():
            self._begin(kept)

    def poll(self) -> None:
        """Take what the ring holds; store it once a second. An error of the disk is said."""
        now_s = self._clock.now_s()
        try:
            self._take_all(now_s)
            if now_s - self._flushed_s >= FLUSH_S or self._ring.held > SIZE // 2:
                self._flush(now_s)
        except LogError as error:
            self._give_up(error, now_s)

    @property
    def is_simulated(self) -> bool:
        return self._translator is not None and self._translator.session.simulated

    def take_truth(self, state: VehicleState) -> None:
        """Record where a simulated ship really is now; a world has a clock of its own."""
        now_s = self._clock.now_s()
        if now_s < self._retry_s:
            return
        try:
            self._take(Kind.TRUTH, truth_of(state, t_s=now_s))
        except LogError as error:
            self._give_up(error, now_s)

    def take_picture(self, camera_control: Path) -> None:
        """Ask the camera's process for a picture, if it is time, and record it."""
        now_s = self._clock.now_s()
        if self._translator is None or now_s < max(self._picture_s, self._retry_s):
            return
        self._picture_s = now_s + NO_PICTURE_S
        if not camera_control.exists():
            return
        try:
            found = ask(camera_control, "picture", timeout_s=PICTURE_WAIT_S)
            record = picture_record(found["about"]["t_s"], found["jpeg"])
            self._picture_s = now_s + PICTURE_S
            self._take(Kind.PICTURE, record)
        except LogError as error:
            self._give_up(error, now_s)
        except (BlimpError, LookupError, TypeError):
            return  # no camera's process, no camera, or a stopped one: its status says which

    def finish(self) -> None:
        """Take the last words of a flight process that ends as well, and close the log."""
        last_s = self._clock.now_s()
        until_s = last_s + 5 * LAST_S
        while self._clock.now_s() < min(until_s, last_s + LAST_S):
            if self._ring.waits:
                last_s = self._clock.now_s()
            self.poll()
            self._clock.sleep_until(self._clock.now_s() + POLL_S / 4)
        try:
            self._close()
        except LogError as error:
            self._give_up(error, last_s)

    def _take_all(self, now_s: float) -> None:
        while (record := self._ring.read()) is not None:
            self._read_s = now_s
            if now_s >= self._retry_s:
                self._take(*record)
            else:
                self._lost += 1
        if not self._ring.waits:
            self._read_s = now_s
        elif now_s - self._read_s > UNREADABLE_S:
            self._ring.skip()
            _say("the ring is damaged: what was in it is lost")

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == Kind.SESSION:
            self._begin(payload)
            if self._log is not None:
                self._go_on()
            return
        translator = self._translator
        if translator is None:
            return
        try:
            found = list(translator.messages(kind, payload))
        except Exception as error:  # it would come again, and end every recorder after this one
            text = f"record of kind {kind}: {error}"
            found = [translator.event("unreadable", text)] if translator.is_timed else []
            if not found:
                _say(text)
        for message in found:
            if self._live is not None:
                self._live.send(message)
            if self._is_wanted(message, translator):
                self._add(message)

    def _begin(self, payload: bytes) -> None:
        session = msgspec.json.decode(payload, type=Session)
        if session.simulated and self._options.seed is not None:
            session = msgspec.structs.replace(
                session, seed=self._options.seed, wind_mps=self._options.wind_mps
            )
        self._translator = Translator(session)
        self._active_s = None
        if self._live is not None:
            self._live.begin(session)

    def _is_wanted(self, message: Message, translator: Translator) -> bool:
        """Thin out what a ship on the ground repeats; begin a new log when it is armed again."""
        t_s = translator.t_s
        if self._active_s is None or translator.armed:
            self._active_s = t_s
            if self._is_idle:
                self._close()
                self._is_new_flight = True
        self._is_idle = t_s - self._active_s > IDLE_S
        if not self._is_idle or message.topic not in ("/snapshot", "/status", "/truth", CAMERA):
            return True
        if t_s - self._kept_s.get(message.topic, 0.0) < IDLE_PERIOD_S:
            return False
        self._kept_s[message.topic] = t_s
        return True

    def _add(self, message: Message) -> None:
        assert self._translator is not None
        if self._log is None:
            self._log = self._new()
        self._log.add(message)

    def _new(self) -> LogFile:
        """Begin a log, which continues the last one unless the ship stood idle since."""
        assert self._translator is not None
        self._make_room()
        session, before = self._translator.session, ""
        if not self._is_new_flight:
            boots = (session.boot_id, session.follows or session.boot_id)
            before = continued(self._directory.path, session.vehicle, boots)
        self._is_new_flight = False
        return self._directory.new(session, before=before)

    def _go_on(self) -> None:
        """End the log, and begin the next one: each names the other if they are one flight."""
        new = self._new()
        old, self._log = self._log, new
        assert old is not None
        with old:
            if new.before == old.path.name:
                old.continue_in(new.path.name)

    def _flush(self, now_s: float) -> None:
        self._flushed_s = now_s
        if self._log is not None and self._translator is not None:
            dropped = self._ring.dropped - self._dropped
            for count, why in ((dropped, "the ring was full"), (self._lost, "the disk took none")):
                if count:
                    text = f"{count} records dropped: {why}"
                    self._log.add(self._translator.event("dropped", text, level=WARNING))
            self._dropped, self._lost = self._dropped + dropped, 0
            self._log.flush()
            if self._wrong:
                self._wrong = ""
                _say(f"recording again: {self._log.path}")
            self._make_room()
            if self._log.size > self._directory.max_bytes // FILES:
                self._go_on()
        self._ring.release()

    def _make_room(self) -> None:
        self._directory.make_room()
        if self._directory.free_bytes() < MIN_FREE_BYTES:
            raise LogError(
                f"log directory {self._directory.path}: less than {MIN_FREE_BYTES // 2**20} MiB "
                "are free on its disk"
            )

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            try:
                log.close()
            except LogError:
                log.abandon()
                raise

    def _give_up(self, error: BlimpError, now_s: float) -> None:
        """Say what is wrong, and drop what comes until it is tried again."""
        log, self._log = self._log, None
        if log is not None:
            log.abandon()
        self._retry_s = now_s + RETRY_S
        self._ring.release()
        if not self._wrong:  # once, however long it lasts
            _say(f"{error}; not recording, trying again in {RETRY_S:.0f} s")
        self._wrong = str(error)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be a file on the same full disk
        print(f"blimp: recorder: {text}", file=sys.stderr, flush=True)
