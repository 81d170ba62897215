"""What the checks look at: the ship's computer, its configuration, its flight process."""

import ctypes
import getpass
import re
from collections.abc import Callable
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from blimp.airframe import Airframe, Device
from blimp.clock import Clock
from blimp.link.paths import RuntimePaths
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.in_flight import running_snapshot
from blimp.service.computer.systemd import FLIGHT, UNIT_DIR
from blimp.types import Snapshot

State = Literal["ok", "warning", "error"]

FLIGHT_UNIT = str(UNIT_DIR / FLIGHT)
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found, and what to do about it.

    state: with an "error" flying would be refused, or cannot work. cure: "" if all is well.
    """

    check: str = ""
    state: State
    found: str
    cure: str = ""


def ok(found: str) -> Finding:
    return Finding(state="ok", found=found)


def warning(found: str, cure: str) -> Finding:
    return Finding(state="warning", found=found, cure=cure)


def error(found: str, cure: str) -> Finding:
    return Finding(state="error", found=found, cure=cure)


def package_version(name: str) -> str | None:
    """Return the version of an installed distribution, None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def clock_is_synchronised() -> bool:
    """Ask the kernel, whatever program sets its clock."""
    request = ctypes.create_string_buffer(512)  # struct timex, all zero: change nothing
    return int(ctypes.CDLL(None, use_errno=True).adjtimex(request)) not in (-1, _TIME_ERROR)


def model(root: Path = Path("/")) -> str:
    """Return the model that the kernel names, "" if it names none."""
    return read_text(root / "proc/device-tree/model")


def read_text(path: Path) -> str:
    """Return what the kernel or a person wrote in a file; "" if it is missing."""
    try:
        return path.read_text(errors="replace").strip("\0\n ")
    except (FileNotFoundError, NotADirectoryError):
        return ""


class Computer:
    """The ship's computer.

    is_of_a_stack: its ship is one of `blimp up`. root: where its files are; tests give a directory
    of their own. config_problem: why the configuration could not be read, "" if it was.
    """

    def __init__(
        self,
        *,
        airframe: Airframe,
        configuration: Configuration,
        config_path: Path,
        config_problem: str,
        paths: RuntimePaths,
        clock: Clock,
        simulated: bool = False,
        is_of_a_stack: bool = False,
        root: Path = Path("/"),
        version_of: Callable[[str], str | None] = package_version,
        synchronised: Callable[[], bool] = clock_is_synchronised,
    ) -> None:
        self.airframe = airframe
        self.configuration = configuration
        self.config_path = config_path
        self.config_problem = config_problem
        self.paths = paths
        self.clock = clock
        self.simulated = simulated
        self.is_of_a_stack = is_of_a_stack
        self.version_of = version_of
        self.synchronised = synchronised
        self._root = root

    def path(self, name: str) -> Path:
        """Return the path of the file that a person knows as `name`."""
        return self._root / name.lstrip("/")

    def text(self, name: str) -> str:
        """Return what the kernel or a person wrote in a file; "" if it is missing."""
        return read_text(self.path(name))

    def rows(self, bus: str) -> list[Device]:
        """Return the devices of the airframe on a kind of bus: "i2c", "gpio" or "serial"."""
        return [row for row in self.airframe.device if row.bus.startswith(bus)]

    @property
    def user(self) -> str:
        """Return as whom the flight process runs: as its unit says, or as this process."""
        found = re.search(r"^User=(.+)$", self.text(FLIGHT_UNIT), re.MULTILINE)
        return found[1] if found else getpass.getuser()

    @property
    def model(self) -> str:
        """Return the kind of Pi, "" if it is none."""
        return model(self._root)

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """What the running flight process sees; None if none runs.

        Raises BlimpError if one may run and cannot be asked: it owns the buses.
        """
        return running_snapshot(self.paths, clock=self.clock)
