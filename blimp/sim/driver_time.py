"""Time, and `ioctl`, for drivers that know nothing of a `Clock`: those of strangers.

In lockstep `time.sleep` moves the world on, so that a conversion ends and an echo comes back, and
`time.monotonic`, `perf_counter` and `time` are the ship's; a driver that spins on one of them gets
on as well. In real time they are the machine's, except in a callback of an edge, where it is as
late as the edge was. The standard library and our own code always see the machine's time.

Most drivers write `from time import sleep` or `from fcntl import ioctl`, so those names are
exchanged in their modules too, once, for functions that ask which ship's files are in place.
"""

import sys
import threading
import time
from functools import partial
from typing import Any, Protocol

from blimp.clock import Clock, ManualClock
from blimp.system import fcntl

_REAL_SLEEP, _REAL_IOCTL = time.sleep, fcntl.ioctl
_REAL_CLOCKS = {name: getattr(time, name) for name in ("monotonic", "perf_counter", "time")}
_SPIN_S = 1e-5  # by which a look at the clock moves it on: about what it takes on a Pi
# Who sees the machine's time, beside the standard library; `serial` waits for a real terminal.
_OURS = ("blimp", "ground_station", "serial", "pytest", "_pytest", "execnet", "xdist", "hypothesis")


class _Place(Protocol):
    """Whose files are in place: a `Computer` of the seam."""

    time: "DriverTime"

    def ioctl(self, fd: Any, request: int, arg: Any = 0, mutate_flag: bool = True) -> Any: ...


_in_place: list[_Place] = []  # the innermost last
_seen = 0  # how many modules there were when their names were last looked through


class DriverTime:
    """The time of one ship. edge: `t_s` is set while a thread is in an edge's callback."""

    def __init__(self, world: Any, clock: Clock, edge: threading.local) -> None:
        self._world = world
        self._clock = clock if isinstance(clock, ManualClock) else None
        self._edge = edge
        self.thread = 0  # the one whose sleeping moves the world

    def sleep(self, seconds: float) -> None:
        clock = self._clock
        if clock is None or threading.get_ident() != self.thread or not seconds >= 0.0:
            _REAL_SLEEP(seconds)
        elif self._world.is_moving:  # from an edge's callback, in the middle of a step
            clock.advance(seconds)
        else:
            self._world.advance(seconds)

    def now_s(self, name: str) -> float:
        edge_s: float | None = getattr(self._edge, "t_s", None)
        is_mine = edge_s is not None or threading.get_ident() == self.thread
        if self._clock is None or not is_mine:  # what other threads wait for is no ship
            real_s: float = _REAL_CLOCKS[name]()
            return real_s if edge_s is None or name == "time" else edge_s
        if edge_s is None:
            self._clock.advance(_SPIN_S)
        return self._clock.wall_s() if name == "time" else self._clock.now_s()


def _place_of_caller() -> _Place | None:
    """Return the ship whose time the caller of our caller sees; None for the machine's."""
    places = _in_place[-1:]  # once: another thread may end a ship at any moment
    if not places:
        return None
    name = sys._getframe(2).f_globals.get("__name__", "").partition(".")[0]
    return None if name in sys.stdlib_module_names or name in _OURS else places[0]


def _sleep(seconds: float, /) -> None:
    place = _place_of_caller()
    (place.time.sleep if place is not None else _REAL_SLEEP)(seconds)


def _now(name: str) -> float:
    place = _place_of_caller()
    now_s: float = place.time.now_s(name) if place is not None else _REAL_CLOCKS[name]()
    return now_s


def _ioctl(fd: Any, request: int, arg: Any = 0, mutate_flag: bool = True, /) -> Any:
    places = _in_place[-1:]
    ioctl = places[0].ioctl if places else _REAL_IOCTL
    return ioctl(fd, request, arg, mutate_flag)


class _BuiltIn(partial[Any]):
    """A function that is no method where a class has it, as none in `time` is.

    pyserial keeps a clock in a class. From CPython 3.14 on a plain partial binds there.
    """

    def __get__(self, instance: object, owner: type | None = None) -> "_BuiltIn":
        return self


_SLEEP = _BuiltIn(_sleep)
_CLOCKS = {name: _BuiltIn(_now, name) for name in _REAL_CLOCKS}
_INSTEAD: dict[str, tuple[Any, Any]] = {
    "sleep": (_REAL_SLEEP, _SLEEP),
    "ioctl": (_REAL_IOCTL, _BuiltIn(_ioctl)),
    **{name: (real, _CLOCKS[name]) for name, real in _REAL_CLOCKS.items()},
}


def enter(place: _Place) -> tuple[Any, ...]:
    """Let drivers see this ship's time from now on; return what `leave` puts back.

    What may fail comes first: then nothing is left exchanged that nobody puts back.
    """
    _exchange_names()
    before = (time.sleep, *(getattr(time, name) for name in _REAL_CLOCKS))
    _in_place.append(place)
    place.time.thread = threading.get_ident()
    time.sleep = _SLEEP
    for name, now in _CLOCKS.items():
        setattr(time, name, now)
    return before


def leave(before: tuple[Any, ...]) -> None:
    _in_place.pop()
    for name, function in zip(("sleep", *_REAL_CLOCKS), before, strict=True):
        setattr(time, name, function)


def _exchange_names() -> None:
    """Exchange what modules of strangers have bound by name; they are few, and loaded once."""
    global _seen
    if len(sys.modules) == _seen:
        return
    modules = sys.modules.copy()  # in one step: other threads import meanwhile
    for name, module in modules.items():
        top = name.partition(".")[0]
        if module is None or top in sys.stdlib_module_names or top in _OURS:
            continue
        names = getattr(module, "__dict__", {})
        for key, (real, instead) in _INSTEAD.items():
            if names.get(key) is real:
                names[key] = instead
    _seen = len(modules)
