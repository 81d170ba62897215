"""What a flight process leaves for its successor, in memory that outlives it.

One small file in the runtime directory, which is on tmpfs on board, mapped into the process: to
write is to copy 95 bytes, with no system call that could wait. A checksum shows a copy that
SIGKILL cut short, and the kernel's boot id one from before a reboot.
"""

import mmap
import os
import struct
import zlib
from pathlib import Path
from uuid import UUID

from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.link.paths import identity
from blimp.types import FlightRecord

_FORMAT = struct.Struct("<d???ddddd3d16s")  # then the CRC-32 of it
_CHECK = struct.Struct("<I")
_SIZE = _FORMAT.size + _CHECK.size


class RecordFile(Closing):
    """The record at `path`; made if it is missing. Raises ConfigError if that fails."""

    def __init__(self, path: Path) -> None:
        self._boot = UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
        self._path = path
        self._memory = self._map()
        self._file = identity(path)

    def _map(self) -> mmap.mmap:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _SIZE)  # else a full tmpfs is a SIGBUS later
                return mmap.mmap(descriptor, _SIZE)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigError(f"flight record {self._path}: {error.strerror}") from error

    def renew(self) -> None:
        """Make the file again if somebody has removed it. Raises ConfigError if that fails.

        For a thread beside the loop's, which writes the new one from its next record on.
        """
        if identity(self._path) == self._file:
            return
        memory = self._map()
        memory[:] = self._memory[:]
        self._memory, self._file = memory, identity(self._path)

    def write(self, record: FlightRecord) -> None:
        """Replace what is there. Never waits."""
        r = record
        data = _FORMAT.pack(
            r.t_s, r.armed, r.killed, r.airborne, r.height_m, r.heaviness_kg, r.pressure_pa,
            r.yaw_rad, r.yaw_sigma_rad, *r.gyro_bias_radps, self._boot,
        )  # fmt: skip
        self._memory[:] = data + _CHECK.pack(zlib.crc32(data))

    def read(self) -> FlightRecord | None:
        """Return what was left, None if there is nothing whole of this boot."""
        data, check = self._memory[: _FORMAT.size], self._memory[_FORMAT.size :]
        if _CHECK.pack(zlib.crc32(data)) != check:
            return None
        (
            t_s, armed, killed, airborne, height_m, heaviness_kg, pressure_pa,
            yaw_rad, yaw_sigma_rad, *bias_radps, boot,
        ) = _FORMAT.unpack(data)  # fmt: skip
        if boot != self._boot:
            return None
        return FlightRecord(
            t_s=t_s,
            armed=armed,
            killed=killed,
            airborne=airborne,
            height_m=height_m,
            heaviness_kg=heaviness_kg,
            pressure_pa=pressure_pa,
            yaw_rad=yaw_rad,
            yaw_sigma_rad=yaw_sigma_rad,
            gyro_bias_radps=(bias_radps[0], bias_radps[1], bias_radps[2]),
        )

    def clear(self) -> None:
        """Leave nothing: the flight process ends in order."""
        self._memory[:] = bytes(_SIZE)

    def close(self) -> None:
        self._memory.close()
