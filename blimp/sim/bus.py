"""A simulated I2C bus: addresses, acknowledges, faults. Chips do the rest."""

import errno
import os
from typing import Protocol

from blimp.errors import BoardError
from blimp.sim.faults import Faults

GENERAL_CALL = 0x00


class I2CTarget(Protocol):
    """What hangs on a bus: the bytes after its address, as they stand on the wire."""

    @property
    def address(self) -> int: ...

    @property
    def faults(self) -> Faults: ...

    def write(self, data: bytes) -> None:
        """Take the bytes of one write, 1 or more, ended by a stop or a repeated start."""
        ...

    def read(self, length: int) -> bytes:
        """Return exactly `length` bytes, 1 or more."""
        ...

    def answers(self, address: int) -> bool:
        """Say whether the chip also acknowledges `address`, beside its own."""
        ...

    def general_call(self, data: bytes) -> None:
        """Take the bytes of a write to address 0."""
        ...


class I2CBus:
    """The chips of one bus by their addresses."""

    def __init__(self, *, number: int) -> None:
        self.number = number
        self._targets: dict[int, I2CTarget] = {}
        self._stuck = False

    def attach(self, target: I2CTarget, *, name: str) -> None:
        """Solder a chip on. Raises BoardError where its address is taken."""
        if target.address in self._targets:
            raise BoardError(
                f"device {name!r}: address 0x{target.address:02x} of i2c-{self.number} is taken"
            )
        self._targets[target.address] = target

    def faults_changed(self) -> None:
        self._stuck = any(target.faults.bus_stuck for target in self._targets.values())

    def transfer(self, address: int, data: bytes, length: int) -> bytes:
        """Write `data`, then read `length` bytes; either may be empty.

        Raises OSError: EREMOTEIO where nobody acknowledges, ETIMEDOUT on a stuck bus.
        """
        if self._stuck:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        target = self._targets.get(address)
        if target is None:
            target = self._other(address, data)
            if target is None:
                return b""
        faults = target.faults
        if faults.no_answer:
            raise no_answer()
        if data:
            target.write(data)
        if not length:
            return b""
        if faults.garbage:
            return faults.random.randbytes(length)
        return target.read(length)

    def _other(self, address: int, data: bytes) -> I2CTarget | None:
        """Find who answers an address that is nobody's own; None after a general call."""
        alive = [target for target in self._targets.values() if not target.faults.no_answer]
        if address == GENERAL_CALL and alive:
            for target in alive:
                target.general_call(data)
            return None
        for target in alive:
            if target.answers(address):
                return target
        raise no_answer()


def no_answer() -> OSError:
    """The error the kernel gives when no chip acknowledges its address."""
    return OSError(errno.EREMOTEIO, os.strerror(errno.EREMOTEIO))
