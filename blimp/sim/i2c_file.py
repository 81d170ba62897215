"""One open /dev/i2c-N of the simulated Pi, as in uapi/linux/i2c-dev.h and i2c.h."""

import errno
import io
import os
import struct
import sys
from collections.abc import Callable
from ctypes import c_char, memmove, string_at
from typing import Any

from blimp.clock import Clock

_I2C_RETRIES = 0x0701
_I2C_TIMEOUT = 0x0702
_I2C_SLAVE = 0x0703
_I2C_TENBIT = 0x0704
_I2C_FUNCS = 0x0705
_I2C_SLAVE_FORCE = 0x0706
_I2C_RDWR = 0x0707
_I2C_PEC = 0x0708
_I2C_SMBUS = 0x0720

# I2C and the SMBus transfers the kernel makes of it, less packet error checking. As on the
# Pi's controller, reading a block whose length the chip sends is not among them.
_FUNCS = 0x0EFF0001

_QUICK, _BYTE, _BYTE_DATA, _WORD_DATA, _PROC_CALL, _BLOCK_DATA = range(6)
_I2C_BLOCK_BROKEN, _BLOCK_PROC_CALL, _I2C_BLOCK_DATA = 6, 7, 8
_BLOCK_MAX = 32
_RDWR_MAX_MESSAGES = 42
_MESSAGE_MAX = 8192
_M_RD = 0x0001

_SMBUS_DATA = struct.Struct("@BBIP")  # read_write, command, size, pointer to the data union
_RDWR_DATA = struct.Struct("@PI")  # pointer to the messages, how many
_MESSAGE = struct.Struct("@HHHP")  # address, flags, length, pointer to the bytes
_Block = c_char * (_BLOCK_MAX + 2)  # the data union; to it `raw` writes no more than it is given
_ONE_BYTE = tuple(bytes((value,)) for value in range(256))

_Transfer = Callable[[int, int, bytes, int], bytes]


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class I2CFile:
    """One open /dev/i2c-N: what the kernel keeps for it."""

    __slots__ = ("_clock", "_timeout_s", "_wires", "address", "bus")

    def __init__(self, bus: int, transfer: _Transfer, *, clock: Clock) -> None:
        self.bus = bus
        self.address = 0
        self._wires = transfer
        self._clock = clock
        self._timeout_s = 1.0  # the kernel's default, for a driver that sets none

    def transfer(self, bus: int, address: int, data: bytes, length: int) -> bytes:
        """Move bytes; a bus that is stuck keeps its caller for the adapter's time-out."""
        began_s = self._clock.now_s()
        try:
            return self._wires(bus, address, data, length)
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                self._clock.sleep_until(began_s + self._timeout_s)
            raise

    def smbus(self, argument: Any) -> int:
        """One SMBus transfer, as i2c_smbus_xfer_emulated makes it of plain I2C."""
        read, command, size, pointer = _SMBUS_DATA.unpack_from(argument)
        transfer, bus, address = self.transfer, self.bus, self.address
        if size == _I2C_BLOCK_DATA:
            block = _Block.from_address(pointer)
            length = block[0]
            count = length[0]
            if not 1 <= count <= _BLOCK_MAX:
                raise _error(errno.EINVAL)
            if read:
                block.raw = length + transfer(bus, address, _ONE_BYTE[command], count)
            else:
                transfer(bus, address, _ONE_BYTE[command] + block[1 : count + 1], 0)
        elif size in (_BYTE_DATA, _WORD_DATA):
            width = 1 if size == _BYTE_DATA else 2
            if read:
                memmove(pointer, transfer(bus, address, _ONE_BYTE[command], width), width)
            else:
                transfer(bus, address, _ONE_BYTE[command] + string_at(pointer, width), 0)
        elif size == _QUICK:
            transfer(bus, address, b"", 0)
        elif size == _BYTE:
            if read:
                memmove(pointer, transfer(bus, address, b"", 1), 1)
            else:
                transfer(bus, address, _ONE_BYTE[command], 0)
        elif size == _PROC_CALL:
            data = _ONE_BYTE[command] + string_at(pointer, 2)
            memmove(pointer, transfer(bus, address, data, 2), 2)
        elif size == _BLOCK_DATA:
            self._block(read, command, pointer)
        elif size in (_I2C_BLOCK_BROKEN, _BLOCK_PROC_CALL):
            raise _error(errno.EOPNOTSUPP)
        else:
            raise _error(errno.EINVAL)
        return 0

    def _block(self, read: int, command: int, pointer: int) -> None:
        """A block with its length as the first byte on the wire."""
        if read:
            # One transfer in which the first byte read says how many follow (I2C_M_RECV_LEN).
            block = self.transfer(self.bus, self.address, _ONE_BYTE[command], _BLOCK_MAX + 1)
            if not 1 <= block[0] <= _BLOCK_MAX:
                raise _error(errno.EPROTO)
            memmove(pointer, block, block[0] + 1)
            return
        count = string_at(pointer, 1)[0]
        if not 1 <= count <= _BLOCK_MAX:
            raise _error(errno.EINVAL)
        data = _ONE_BYTE[command] + string_at(pointer, count + 1)
        self.transfer(self.bus, self.address, data, 0)

    def rdwr(self, argument: Any) -> int:
        """Messages with repeated starts between them; reads fill the caller's buffers."""
        pointer: int
        count: int
        pointer, count = _RDWR_DATA.unpack_from(argument)
        if not 1 <= count <= _RDWR_MAX_MESSAGES:
            raise _error(errno.EINVAL)
        messages = list(_MESSAGE.iter_unpack(string_at(pointer, count * _MESSAGE.size)))
        if any(length > _MESSAGE_MAX for _, _, length, _ in messages):
            raise _error(errno.EINVAL)
        pending: tuple[int, bytes] | None = None  # a write whose read may follow
        for address, flags, length, buffer in messages:
            if not flags & _M_RD:
                if pending is not None:
                    self.transfer(self.bus, pending[0], pending[1], 0)
                pending = (address, string_at(buffer, length))
                continue
            data = b""
            if pending is not None:
                if pending[0] == address:
                    data = pending[1]
                else:
                    self.transfer(self.bus, pending[0], pending[1], 0)
                pending = None
            memmove(buffer, self.transfer(self.bus, address, data, length), length)
        if pending is not None:
            self.transfer(self.bus, pending[0], pending[1], 0)
        return count

    def ioctl(self, request: int, argument: Any) -> Any:
        if request == _I2C_SMBUS:
            return self.smbus(argument)
        if request == _I2C_RDWR:
            return self.rdwr(argument)
        return self.settle(request, argument)

    def settle(self, request: int, argument: Any) -> Any:
        """The requests that move no bytes on the bus."""
        if request in (_I2C_SLAVE, _I2C_SLAVE_FORCE):
            if not 0 <= argument <= 0x7F:
                raise _error(errno.EINVAL)
            self.address = argument
            return 0
        if request == _I2C_FUNCS:
            if isinstance(argument, bytes):  # fcntl.ioctl returns what it cannot fill in
                return _FUNCS.to_bytes(len(argument), sys.byteorder)
            struct.pack_into(
                "@L" if memoryview(argument).nbytes >= 8 else "@I", argument, 0, _FUNCS
            )
            return 0
        if request in (_I2C_TENBIT, _I2C_PEC):
            if argument:
                raise _error(errno.EINVAL)
            return 0
        if request == _I2C_TIMEOUT:
            self._timeout_s = argument * 0.01
            return 0
        if request == _I2C_RETRIES:
            return 0
        raise _error(errno.ENOTTY)


class I2CStream(io.RawIOBase):
    """What the builtin `open` returns for /dev/i2c-N: plain reads and writes of I2C."""

    def __init__(self, file: I2CFile, fd: int, close: Callable[[int], None]) -> None:
        self._file, self._fd, self._close = file, fd, close

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self._file.transfer(self._file.bus, self._file.address, b"", len(view))
        return len(view)

    def write(self, data: Any) -> int:
        self._file.transfer(self._file.bus, self._file.address, bytes(data), 0)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._close(self._fd)
