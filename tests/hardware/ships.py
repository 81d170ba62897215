"""Airframes for board tests: the twin with another device table."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from blimp import airframe
from blimp.airframe import Airframe, Device, Servo


@cache
def twin() -> Airframe:
    return airframe.load("twin")


def with_devices(*devices: Device, servos: Sequence[Servo] | None = None) -> Airframe:
    """The twin with these devices only. Not checked as a whole, as the reader would."""
    base = twin()
    return msgspec.structs.replace(
        base, device=devices, servo=base.servo if servos is None else tuple(servos)
    )


def changed(name: str, **changes: Any) -> Airframe:
    """The twin with one device's row changed."""
    return with_devices(
        *(
            msgspec.structs.replace(row, **changes) if row.name == name else row
            for row in twin().device
        )
    )
