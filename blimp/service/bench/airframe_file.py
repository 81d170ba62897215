"""An airframe file that is edited in place, comments and all."""

import difflib
from pathlib import Path
from typing import Any

from blimp.airframe import Airframe, Device, Servo, Thruster, parse
from blimp.distribution import needing
from blimp.errors import ConfigError
from blimp.hardware.board import check, wiring_of
from blimp.service.files import write_whole

PULSE_DIGITS = 6  # microseconds


class AirframeFile:
    """Raises ConfigError if the file cannot be read, or is no airframe."""

    def __init__(self, path: Path) -> None:
        with needing("bench", "the bench needs"):
            import tomlkit
        self.path = path
        try:
            self._before = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"airframe file {path}: {error}") from error
        self.airframe: Airframe = parse(self._before, where=str(path))
        check(self.airframe)
        self._document: Any = tomlkit.parse(self._before)
        self.reversed: set[str] = set()  # thrusters whose bridges were turned round

    def reverse_motor(self, thruster: str) -> bool:
        """Swap the two inputs of a motor's bridge; False if its driver has no such pins."""
        row, channel = self._driver(thruster)
        pins = [
            pin
            for pin in wiring_of(row.chip).channel_pins.get(channel, ())
            if pin.endswith(("1", "2"))
        ]
        if len(pins) != 2:
            return False
        self.reversed.add(thruster)
        table = self._table("device", row.name)["pins"]
        first, second = pins
        table[first], table[second] = row.pins[second], row.pins[first]
        return True

    def set_dead_bands(self, thruster: Thruster, *, forward: float, reverse: float) -> None:
        """Set the throttles at which a motor begins to turn, as they were before any reversal."""
        if thruster.name in self.reversed:
            forward, reverse = reverse, forward
        table = self._table("thruster", thruster.name)
        self._set(table, "dead_band", forward, thruster.dead_band)
        self._set(table, "reverse_dead_band", reverse, thruster.reverse_dead_band)

    def set_servo(
        self, servo: Servo, *, reverse: bool, off_rad: float, min_rad: float, max_rad: float
    ) -> None:
        """Have the servo's angles be the true ones.

        reverse: it turns the other way. off_rad: where it truly stands at its neutral angle,
        minus that angle. min_rad, max_rad: what it reaches without binding.
        """
        span_s = servo.max_pulse_s - servo.min_pulse_s
        slope = span_s / (servo.max_rad - servo.min_rad)
        centre_s = servo.min_pulse_s + slope * (servo.neutral_rad - servo.min_rad)
        if reverse:
            slope = -slope
        centre_s -= slope * off_rad
        table = self._table("servo", servo.name)
        for key, angle in (("min", min_rad), ("max", max_rad)):
            pulse_s = centre_s + slope * (angle - servo.neutral_rad)
            self._set(table, f"{key}_rad", angle, getattr(servo, f"{key}_rad"))
            self._set(
                table, f"{key}_pulse_s", round(pulse_s, PULSE_DIGITS),
                getattr(servo, f"{key}_pulse_s"),
            )  # fmt: skip

    def set_options(self, device: str, **options: Any) -> None:
        """Set options of a device's driver; others are kept."""
        import tomlkit

        table = self._table("device", device)
        before = self.options(device)
        for key, value in options.items():
            if before.get(key) == value:
                continue
            if "options" not in table:
                table["options"] = tomlkit.inline_table()
            table["options"][key] = value

    def options(self, device: str) -> dict[str, Any]:
        """Return the options of a device's driver as they are now, changes included."""
        options = self._table("device", device).get("options", {})
        return dict(options.unwrap() if hasattr(options, "unwrap") else options)

    def difference(self) -> str:
        """Return what changed, as `diff -u`; "" if nothing has."""
        return "".join(
            difflib.unified_diff(
                self._before.splitlines(keepends=True),
                self._after().splitlines(keepends=True),
                fromfile=str(self.path),
                tofile=f"{self.path} (new)",
                n=1,
            )
        )

    def write(self) -> None:
        """Replace the file, in one step. Raises ConfigError if the result is no airframe."""
        text = self._after()
        check(parse(text, where=f"{self.path} (new)"))
        write_whole(self.path, text, mode=None, keep_owner=True)  # the units read it

    def _after(self) -> str:
        return str(self._document.as_string())

    def _driver(self, output: str) -> tuple[Device, str]:
        """Return the device that drives an output, and its channel."""
        for row in self.airframe.device:
            for channel, name in row.outputs.items():
                if name == output:
                    return row, channel
        raise ConfigError(f"airframe file {self.path}: no device drives {output!r}")

    def _table(self, kind: str, name: str) -> Any:
        return next(table for table in self._document[kind] if table["name"] == name)

    @staticmethod
    def _set(table: Any, key: str, value: float, before: float) -> None:
        if abs(value - before) > 1e-9:  # what has not changed keeps its digits
            table[key] = value
