"""A work bench: one simulated chip with its truth set by the test."""

from dataclasses import dataclass, field
from typing import Any

from blimp import airframe
from blimp.airframe import Airframe, Device
from blimp.sim.chips.chip import Chip, Fitting
from blimp.sim.electronics import twin
from blimp.sim.gpio import GpioBank
from blimp.sim.timeline import Timeline
from blimp.types import LEVEL, ZERO3, Quaternion, Vec3


@dataclass
class Quantities:
    """A truth that stands still until it is changed. Implements `Truth`."""

    attitude: Quaternion = LEVEL
    rates_body_radps: Vec3 = ZERO3
    specific_force_body_mps2: Vec3 = (0.0, 0.0, -9.80665)
    position_ned_m: Vec3 = ZERO3
    velocity_ned_mps: Vec3 = ZERO3
    pressure_pa: float = 101325.0
    temperature_c: float = 15.0
    battery_v: float = 8.0
    battery_current_a: float = 1.0


@dataclass
class Bench:
    """Wires, time and truth for one chip of the twin.

    sent: what a serial chip has sent, with the times of arrival.
    """

    seed: int = 1
    truth: Quantities = field(default_factory=Quantities)
    timeline: Timeline = field(default_factory=Timeline)
    sent: list[tuple[float, bytes]] = field(default_factory=list)
    ship: Airframe = field(default_factory=lambda: airframe.load("twin"))

    def __post_init__(self) -> None:
        self.pins = GpioBank(timeline=self.timeline)

    def fit(self, name: str, **changes: Any) -> Any:
        """Make the chip of one of the twin's rows, with some of the row's keys changed."""
        row = next(row for row in self.ship.device if row.name == name)
        values = {key: getattr(row, key) for key in row.__struct_fields__} | changes
        device = Device(**values)
        chip: Chip = twin(device.chip)(
            Fitting(
                device=device,
                airframe=self.ship,
                truth=self.truth,
                timeline=self.timeline,
                pins=self.pins,
                seed=self.seed,
                send=lambda data: self.sent.append((self.timeline.now_s, data)),
                start_utc_s=1.7e9,
            )
        )
        return chip

    def run(self, seconds: float) -> None:
        end_s = self.timeline.now_s + seconds
        while self.timeline.next_s <= end_s:
            self.timeline.run_next()
        self.timeline.now_s = end_s


def read(chip: Any, register: int, length: int = 1) -> bytes:
    """Write the register's number, then read, as a driver does."""
    chip.write(bytes((register,)))
    data: bytes = chip.read(length)
    assert len(data) == length
    return data
