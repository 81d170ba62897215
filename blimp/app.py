"""The composition root: the one place that names concrete classes.

One function a process (`fly`, `work`, `simulate`), one for the safe state, one for the
stack of all of them, and `assemble` for whoever flies a ship in process (Lockstep).
"""

import contextlib
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from blimp import airframe as airframes
from blimp import notify
from blimp.airframe import Airframe
from blimp.broker import find_server_binary, server_arguments
from blimp.clock import Clock, SystemClock
from blimp.config import (
    broker_url_from_environment,
    notify_address,
    registry_dir,
    vehicle_name,
)
from blimp.errors import BlimpError, LinkError
from blimp.paths import RuntimePaths
from blimp.stack import Event, Role, Stack

OnStop = Callable[[Callable[[], None]], None]  # given what to call when the process must end

SNAPSHOT_RATE_HZ = 10.0
ORPHAN_GRACE_S = 2.0  # how long a world outlives its supervisor, for the ship to let go


class FlightOptions(msgspec.Struct, frozen=True, kw_only=True):
    airframe: str
    vehicle: str | None
    runtime_dir: Path | None
    simulated: bool
    bench: bool = False
    rate_hz: float = 100.0


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    vehicle: str
    broker: str | None
    runtime_dir: Path | None


class WorldOptions(msgspec.Struct, frozen=True, kw_only=True):
    airframe: str
    seed: int
    wind_mps: float
    runtime_dir: Path | None


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    airframe: str
    vehicle: str | None
    seed: int
    wind_mps: float
    runtime_dir: Path | None
    bench: bool = False


# --- the flight process ---------------------------------------------------------------------
