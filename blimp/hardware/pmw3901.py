"""PMW3901: optical flow on SPI, looking down.

Source: PMW3901MB data sheet 1.3: 4 (SPI), 5 (burst), 8.2 (settings after power-on, without the
part that reads trim values back), registers. What a count means in radians is not in it: 1/385 is
PX4's measurement.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, SpiDevice
from blimp.hardware.device import Sensor, Steps, Wiring, read_options
from blimp.hardware.registers.flow import PMW3901 as R
from blimp.types import FlowSample

MAX_SPAN_S = 0.5  # between two reads: beyond it the counts may have wrapped
WRITES_A_POLL = 10
# Pairs of register and value, 8.2: few of them have a public meaning.
SETTINGS = bytes.fromhex(
    "7f0061ad7f0340007f0541b343f145145b325f347b087f06441b40bf4e3f7f0865206a187f094faf5f4048804980"
    "577760786178620863507f0a45607f004d115580741f751f4a784b784408455064ff651f7f1465676608637 0"
    "7f1548487f07410d43144b0e450f44424c807f105b027f0740417000".replace(" ", "")
)
SETTINGS_AFTER_PAUSE = bytes.fromhex("32447f0740407f0662f063007f0d48c06fd57f005ba04ea85a504080")
_BURST = Struct("<BBhhBBBBBB")
_AXES = {"x": (1, 0), "-x": (-1, 0), "y": (0, 1), "-y": (0, -1)}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mounting: which chip axis, with its sign, counts up when the ship goes forward and right."""

    mounting: tuple[str, str] = ("x", "y")
    rad_per_count: float = 1.0 / 385.0


class Pmw3901(Sensor[FlowSample]):
    """Rates of the ground in view, the ship's own turning still in them."""

    UNIT: ClassVar[str] = "rad/s"
    WIRING: ClassVar = Wiring(bus="spi")
    STALE_S: ClassVar[float] = 1.0
    STALE_ERROR: ClassVar[str] = "frozen: the same bytes"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        options = read_options(row.options, Options, who=row.name)
        axes = [_AXES.get(axis) for axis in options.mounting]
        if None in axes or options.mounting[0].strip("-") == options.mounting[1].strip("-"):
            raise BoardError(
                f"{row.name}: mounting {', '.join(options.mounting)} must name x and y once each"
            )
        if not 1e-4 <= options.rad_per_count <= 0.1:  # refuses NaN as well
            raise BoardError(f"{row.name}: rad_per_count {options.rad_per_count} is impossible")
        self._forward, self._right = (axis or (0, 0) for axis in axes)
        self._rad_per_count = options.rad_per_count
        self._chip: SpiDevice | None = None
        self._raw = b""
        self._read_s: float | None = None

    def close(self) -> None:
        chip, self._chip = self._chip, None
        if chip is not None:
            chip.close()

    def _start(self) -> Steps:
        self.close()
        self._chip = self._buses.spi(self._row.bus, mode=R.MODE, speed_hz=R.SPEED_HZ)
        self._identify()
        self._write(R.POWER_UP_RESET, R.RESET_WORD)
        yield R.RESET_S
        self._identify()
        inverse = self._get(R.INVERSE_PRODUCT_ID)
        if inverse != R.INVERSE_CHIP_ID:
            raise self._wrong("inverse product id", R.INVERSE_PRODUCT_ID, inverse)
        for settings, pause_s in ((SETTINGS, 0.01), (SETTINGS_AFTER_PAUSE, 0.0)):
            for i in range(0, len(settings), 2):
                self._write(settings[i], settings[i + 1])
                if i // 2 % WRITES_A_POLL == 0:
                    yield 0.0
            yield pause_s
        self._read_s = None

    def _read(self, now_s: float) -> FlowSample | None:
        self._identify()  # SPI acknowledges nothing: an absent chip reads as all bits alike
        raw = self._exchange(bytes([R.MOTION_BURST]), R.BURST_LENGTH)
        before_s, self._read_s = self._read_s, now_s
        _, _, dx, dy, quality, _, most, least, shutter, _ = _BURST.unpack(raw)
        if least > most:
            raise DeviceError(
                f"{self.name}: its least raw data {least} is above the greatest {most}"
            )
        if raw == self._raw:
            return None
        self._raw = raw
        if quality < R.SQUAL_MIN and shutter == R.SHUTTER_OPEN:
            self._alive(now_s, f"surface quality {quality}: too dark, or nothing to see")
            return None
        span_s = 0.0 if before_s is None else now_s - before_s
        if not 0.0 < span_s <= MAX_SPAN_S:
            self._alive(now_s)
            return None
        rates = (dx * self._rad_per_count / span_s, dy * self._rad_per_count / span_s)
        if max(map(abs, rates)) > R.MAX_RADPS:
            raise DeviceError(
                f"{self.name}: flow of {max(map(abs, rates)):.1f} rad/s is above the chip's "
                f"{R.MAX_RADPS:g} rad/s"
            )
        self._alive(now_s)
        return FlowSample(
            t_s=now_s,
            span_s=span_s,
            flow_body_radps=(_along(self._forward, rates), _along(self._right, rates)),
            quality=quality,
        )

    def _identify(self) -> None:
        found = self._get(R.PRODUCT_ID)
        if found != R.CHIP_ID:
            raise self._wrong("product id", R.PRODUCT_ID, found, R.CHIP_ID)

    def _wrong(
        self, what: str, register: int, found: int, expected: int = R.INVERSE_CHIP_ID
    ) -> DeviceError:
        return DeviceError(
            f"{self.name}: pmw3901 at {self._row.bus}: {what} (0x{register:02X}) reads "
            f"0x{found:02X}, expected 0x{expected:02X}"
        )

    def _get(self, register: int) -> int:
        return self._exchange(bytes([register]), 1)[0]

    def _write(self, register: int, value: int) -> None:
        self._exchange(bytes([register | R.WRITE, value]), 0)

    def _exchange(self, out: bytes, length: int) -> bytes:
        if self._chip is None:
            raise DeviceError(f"{self.name}: closed")
        return self._chip.exchange(out, length, pause_s=R.READ_PAUSE_S)

    def _value(self, sample: FlowSample) -> tuple[float, ...]:
        return sample.flow_body_radps


def _along(axis: tuple[int, int], rates: tuple[float, float]) -> float:
    return axis[0] * rates[0] + axis[1] * rates[1]
