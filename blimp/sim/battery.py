"""A lithium-polymer battery: it empties, and sags under load, at once and over seconds."""

from blimp.airframe import Battery
from blimp.sim.arithmetic import SCALARS, Arithmetic

FULL_CELL_V = 4.20
# Open-circuit voltage of a resting LiPo cell over its state of charge: the usual curve of
# makers' discharge sheets; cells differ by some 20 mV.
OPEN_CIRCUIT: tuple[tuple[float, float], ...] = (
    (0.00, 3.00),
    (0.05, 3.45),
    (0.10, 3.60),
    (0.20, 3.69),
    (0.30, 3.74),
    (0.40, 3.77),
    (0.50, 3.81),
    (0.60, 3.86),
    (0.70, 3.93),
    (0.80, 4.01),
    (0.90, 4.10),
    (1.00, FULL_CELL_V),
)
_CHARGES = [charge for charge, _ in OPEN_CIRCUIT]
_VOLTS = [volts for _, volts in OPEN_CIRCUIT]


def open_circuit_cell_v(charge: float, arithmetic: Arithmetic = SCALARS) -> float:
    """Return a resting cell's voltage at a state of charge between 0 and 1."""
    volts: float = arithmetic.interpolate(charge, _CHARGES, _VOLTS)
    return volts


class BatteryPack:
    """Cells in series behind one resistance. It starts full by default."""

    def __init__(
        self, *, battery: Battery, charge: float = 1.0, arithmetic: Arithmetic = SCALARS
    ) -> None:
        if not 0.0 <= charge <= 1.0:
            raise ValueError(f"charge is {charge!r}, must be between 0 and 1")
        self._battery = battery
        self._arithmetic = arithmetic
        self._charge = charge
        self._current_a = battery.idle_current_a
        # It has rested with the electronics on.
        self._polarisation_v = battery.polarisation_ohm * battery.idle_current_a
        self._dt_s = 0.0
        self._share = 0.0
        self._polarises = arithmetic is not SCALARS or battery.polarisation_ohm > 0.0
        self._voltage_v = self._loaded_v()

    @property
    def charge(self) -> float:
        """State of charge, 1 full to 0 empty."""
        return self._charge

    @property
    def current_a(self) -> float:
        return self._current_a

    @property
    def voltage_v(self) -> float:
        """At the terminals, under the present load."""
        return self._voltage_v

    @property
    def supply(self) -> float:
        """Voltage over that of a full, resting battery."""
        return self._voltage_v / (FULL_CELL_V * self._battery.cells)

    def step(self, dt_s: float, motor_current_a: float) -> None:
        """Take the electronics' current and `motor_current_a` out for `dt_s`."""
        self._current_a = self._battery.idle_current_a + motor_current_a
        used = self._current_a * dt_s / 3600.0 / self._battery.capacity_ah
        self._charge = self._arithmetic.clamp(self._charge - used, 0.0, 1.0)
        if self._polarises:
            self._polarise(dt_s)
        self._voltage_v = self._loaded_v()

    def _polarise(self, dt_s: float) -> None:
        if dt_s != self._dt_s:
            self._dt_s = dt_s
            self._share = 1.0 - self._arithmetic.exp(-dt_s / self._battery.polarisation_s)
        settled_v = self._battery.polarisation_ohm * self._current_a
        self._polarisation_v += self._share * (settled_v - self._polarisation_v)

    def _loaded_v(self) -> float:
        battery = self._battery
        open_v = battery.cells * open_circuit_cell_v(self._charge, self._arithmetic)
        loaded_v: float = self._arithmetic.clamp(
            open_v - self._current_a * battery.resistance_ohm - self._polarisation_v, 0.0, open_v
        )
        return loaded_v
