"""A person with a radio transmitter: CRSF frames on the wire below pyserial, in the simulator."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import ClassVar

from tests.contracts.faces.face import WITHIN_S, Face, Trouble, before_and_after
from tests.contracts.faces.rig import Rig

ARM, STOP = "ch5", "ch7"
CYCLES = 5  # snapshots of the flight process in which it would have acted
BIT_ERRORS = 0.05  # of the bits: ten in a frame of 26 bytes


class Transmitter(Face):
    name = "transmitter"
    hears = ("flight serial",)
    without: ClassVar[Mapping[str, str]] = {
        "flood": "its line is full with the receiver's own frames",
        "old": "a frame has no date: it says where the switches are",
    }

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def _move(self, channel: str, value: float) -> None:
        self._rig.world.fault("transmitter", "stuck", channel=channel, value=value)

    def stop(self) -> None:
        """Move the stop switch, and back; what confirms it is what the flight process says."""
        self._move(STOP, 1.0)
        until_s = monotonic() + WITHIN_S
        while not self._rig.next_said().killed:
            if monotonic() > until_s:
                raise TimeoutError(f"the ship is not killed within {WITHIN_S:g} s")
        self._move(STOP, -1.0)

    def _suffer(self, fault: str, **options: object) -> None:
        """Let the receiver suffer a fault while its pilot moves the arm switch; then end it."""
        self._rig.world.fault("transmitter", fault, **options)
        for value in (1.0, -1.0):
            self._move(ARM, value)
            for _ in range(CYCLES):
                self._rig.next_said()
        self._rig.world.fault("transmitter", "clear")

    def strangers(self) -> Trouble:
        """Bytes of something that is no receiver."""
        return before_and_after(lambda: self._suffer("garbage"))

    def half(self) -> Trouble:
        """A line on which frames end in the middle, and nothing follows."""
        return before_and_after(lambda: self._suffer("no_answer"))

    def silence(self) -> Trouble:
        """A receiver that hears no transmitter."""
        return before_and_after(lambda: self._suffer("unlinked"))

    def forged(self) -> Trouble:
        """Frames with wrong bits: some in each of them."""
        return before_and_after(lambda: self._suffer("bit_errors", rate=BIT_ERRORS))

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """The frame of the arm switch comes again and again, through the stop and after it."""
        self._move(ARM, 1.0)
        yield
        self._rig.world.fault("transmitter", "frozen")
        for _ in range(CYCLES):
            self._rig.next_said()
        self._rig.world.fault("transmitter", "clear")
