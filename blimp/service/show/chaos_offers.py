"""What harm can be done to a simulated ship, and how much of it its airframe can fly."""

from collections.abc import Iterator, Sequence
from math import hypot

import msgspec

from blimp.airframe import Airframe
from blimp.errors import ConfigError
from blimp.service.airframes.figures import compute
from blimp.ship.failures import FAILURES, Fault
from blimp.sim.atmosphere import GRAVITY_MPS2
from blimp.sim.wire import Truth

LIES = ("offset", "stuck", "drift", "scale")
HELIUM_LIFT_KG_M3 = 1.05
SHARE = 0.5  # of the upward thrust that heat and leak may take: the rest climbs
WARM_K = 288.0  # about the air's temperature, by which its density falls
HOTTEST_K = 60.0


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One action that can be asked for. most, unit: of its amount; why: what sets that limit.

    devices: what it can be done to.
    """

    name: str
    text: str
    unit: str = ""
    most: float | None = None
    why: str = ""
    devices: tuple[str, ...] = ()

    def checked(self, amount: float | None, device: str | None) -> float:
        """Return the amount to do, its limit by default. Raises ConfigError with the limit."""
        if self.devices and device not in self.devices:
            known = ", ".join(self.devices)
            raise ConfigError(f"{self.name}: device must be one of {known}, not {device!r:.40}")
        if not self.devices and device is not None:
            raise ConfigError(f"{self.name} takes no device")
        if self.most is None:
            if amount is not None:
                raise ConfigError(f"{self.name} takes no amount")
            return 0.0
        if self.most <= 0.0:
            raise ConfigError(f"{self.name}: no more can be flown: {self.why}")
        if amount is None:
            return self.most
        if not 0.0 < amount <= self.most:  # false for NaN, too
            limit = f"above 0, to {self.most:g} {self.unit}"
            raise ConfigError(f"{self.name} must be {limit}, not {amount:g}: {self.why}")
        return amount


def offers(airframe: Airframe, truth: Truth) -> list[Offer]:
    """Return what can be done to a ship as it is now."""
    figures = compute(airframe)
    blows_mps = hypot(*truth.wind_ned_mps)
    up_kg = SHARE * figures.authority.up_n / GRAVITY_MPS2
    displaced_kg = airframe.mass_kg - truth.heaviness_kg
    heavy_kg = max(0.0, truth.heaviness_kg)
    found = [
        Offer(name="kill-worker", text="Kill the worker"),
        Offer(
            name="kill-flight", text="Kill the flight process",
            why="in the air a heavy ship then sinks, disarmed; a light one lands under power",
        ),
        Offer(name="stop-broker", text="Stop the broker"),
        Offer(name="cut-link", text="Cut the link"),
        Offer(name="blind-position", text="Blind the position"),
        Offer(
            name="hold-ship", text="Hold the ship still",
            why="as a person would, until it is let go",
        ),
        Offer(name="let-go", text="Let go of the ship"),
        Offer(name="blind-sensor", text="Blind it", devices=_sensors(airframe, ("no_answer",))),
        Offer(name="freeze-sensor", text="Freeze it", devices=_sensors(airframe, ("frozen",))),
        Offer(name="lie-sensor", text="Lie with it", devices=_sensors(airframe, LIES)),
        Offer(
            name="gust", text="Gust from ahead", unit="m/s",
            most=_floored(figures.max_wind_mps - blows_mps),
            why=f"{airframe.name} holds {figures.max_wind_mps:.2g} m/s of wind, and "
            f"{blows_mps:.2g} blow already",
        ),
        Offer(
            name="heat", text="Heat the air", unit="K",
            most=_floored(min(HOTTEST_K, WARM_K * (up_kg - heavy_kg) / displaced_kg)),
            why="at most half of the upward thrust replaces the lift that warm air takes",
        ),
        Offer(
            name="leak", text="Leak", unit="g of lift", most=_floored(1e3 * (up_kg - heavy_kg)),
            why="at most half of the upward thrust replaces the lost lift",
        ),
    ]  # fmt: skip
    return [one for one in found if one.devices or not one.name.endswith("-sensor")]


def failures(device: str, kinds: Sequence[str]) -> Iterator[tuple[str, Fault]]:
    """Yield what `blimp sim matrix` knows of one sensor alone failing so: words and fault."""
    for failure in FAILURES:
        alone = [fault for fault in failure.faults if fault.device == device]
        if len(failure.faults) == 1 and alone and alone[0].kind in kinds:
            yield failure.text, alone[0]


def _sensors(airframe: Airframe, kinds: Sequence[str]) -> tuple[str, ...]:
    names = (one.name for one in airframe.device if not one.outputs)
    return tuple(name for name in names if next(failures(name, kinds), None))


def _floored(value: float) -> float:
    """Return a limit with two decimals, never above the true one and never below 0."""
    return max(0.0, int(100.0 * value) / 100.0)
