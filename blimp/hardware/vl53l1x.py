"""VL53L1X: laser ranger on I2C, looking down.

Sources: DS12385 (timing, range), UM2510 and the registers of ST's ultra lite driver
(STSW-IMG009), which is all there is in public of them.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.hardware.registers.rangers import VL53L1X as R
from blimp.types import RangeSample

# The settings that ST's driver writes from 0x2D on: long distance, interrupt active high. Few of
# these registers have a public meaning. Unlike there, the bus and the interrupt are pulled up to
# AVDD (0x2E, 0x2F), as on every board for a Pi.
CONFIGURATION = bytes.fromhex(
    "0001010102000208000810010100000000ff000f0000000000200b0000020a21"
    "00000500000000c8000038ff010008000001cc0f01f10d0168008008b8000000"
    "000f8900000000000000010f0d0e0e000002c7ff9b000000010000"
)
MARGIN_MS = 2  # between two measurements
CHUNK = 29
MAX_STEPS = 10  # of the stream count between two reads
_HARDWARE_FAULTS = {1: "laser continuity", 2: "laser watchdog", 3: "no reference value"}
_NOTHING = {
    4: "signal too weak: nothing in range",
    5: "phase out of bounds: beyond its range",
    6: "sigma too large: too much noise",
    7: "wrap-around: beyond its range",
    8: "nearer than it can see",
    19: "not yet checked for wrap-around",
}
_RESULT = Struct(">BxB10xH2x")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """min_m, max_m: between which a reading makes a sample. budget_ms: for one measurement.

    rest_m: its height above the floor while the ship stands on its pad, for the estimator.
    """

    min_m: float = 0.04
    max_m: float = 4.0
    budget_ms: int = 33
    rest_m: float = 0.0


class Vl53L1X(I2CSensor[RangeSample]):
    """Ranges on its own, one measurement after the other; its stream count proves each."""

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="i2c")
    STALE_S: ClassVar[float] = 0.5
    STALE_ERROR: ClassVar[str] = "no new measurement"
    WIDE: ClassVar[bool] = True

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._options = options = read_options(row.options, Options, who=row.name)
        if options.budget_ms not in R.LONG_TIMING:
            known = ", ".join(map(str, R.LONG_TIMING))
            raise BoardError(f"{row.name}: budget_ms {options.budget_ms} is none of {known}")
        self._budget_ms = options.budget_ms
        self._stream: int | None = None

    def _start(self) -> Steps:
        self._open()
        self._identify("model id", R.MODEL_ID, R.IDENTITY, length=2)
        self._store(R.SOFT_RESET, b"\x00")
        yield 0.001
        self._store(R.SOFT_RESET, b"\x01")
        yield R.BOOT_S
        status = self._load(R.FIRMWARE_STATUS, 1)[0]
        if not status & R.BOOTED:
            raise DeviceError(f"{self._where}: firmware status reads 0x{status:02X}: not booted")
        for at in range(0, len(CONFIGURATION), CHUNK):
            self._store(R.CONFIGURATION + at, CONFIGURATION[at : at + CHUNK])
            yield 0.0
        # The first measurement finds the laser's reference voltage, UM2510 2.5.
        self._store(R.MODE_START, bytes([R.RANGING]))
        yield 0.15
        self._store(R.INTERRUPT_CLEAR, b"\x01")
        self._store(R.MODE_START, bytes([R.STOP]))
        self._store(R.VHV_LOOP_BOUND, bytes([R.VHV_TWO_BOUNDS]))
        self._store(R.VHV_INIT, b"\x00")
        yield 0.0
        macrop_a, macrop_b = R.LONG_TIMING[self._budget_ms]
        self._set(R.TIMEOUT_MACROP_A, macrop_a.to_bytes(2, "big"))
        self._set(R.TIMEOUT_MACROP_B, macrop_b.to_bytes(2, "big"))
        clock = self._word(R.OSC_CALIBRATE_VAL) & 0x3FF
        period = int(clock * (self._budget_ms + MARGIN_MS) * 1.075)
        self._set(R.INTERMEASUREMENT, period.to_bytes(4, "big"))
        self._store(R.MODE_START, bytes([R.RANGING]))
        self._stream = None

    def _read(self, now_s: float) -> RangeSample | None:
        if not self._load(R.GPIO_TIO_HV_STATUS, 1)[0] & 1:
            return None
        status, stream, distance_mm = _RESULT.unpack(self._load(R.RANGE_STATUS, R.RESULT_LENGTH))
        self._store(R.INTERRUPT_CLEAR, b"\x01")
        before, self._stream = self._stream, stream
        if before is not None and not _follows(before, stream):
            raise DeviceError(
                f"{self.name}: its stream count went from {before} to {stream}: "
                "it stands still, or the bytes are garbage"
            )
        status &= R.STATUS_MASK
        if status in _NOTHING:
            self._alive(now_s, _NOTHING[status])
            return None
        if status != R.RANGE_COMPLETE:
            what = _HARDWARE_FAULTS.get(status, "unknown")
            raise DeviceError(f"{self.name}: range status {status}: {what}")
        distance_m = distance_mm / 1000.0
        if not self._options.min_m <= distance_m <= self._options.max_m:
            self._alive(
                now_s,
                f"{distance_m:.2f} m is outside {self._options.min_m:g} to "
                f"{self._options.max_m:g} m",
            )
            return None
        self._alive(now_s)
        return RangeSample(t_s=now_s, distance_m=distance_m)

    def _value(self, sample: RangeSample) -> float:
        return sample.distance_m


def _follows(before: int, stream: int) -> bool:
    """Say whether a stream count is one of the next. After 255 comes 128."""
    steps = stream - before
    if steps <= 0 and before >= 128 and stream >= 128:
        steps += 128
    return 0 < steps <= MAX_STEPS
