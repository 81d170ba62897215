"""Dead bands and ESCs: a person who sees the simulated motors, with errors that the test knows."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe
from blimp.service.computer.initialise import Question
from blimp.ship import Lockstep
from blimp.sim.chips.esc import EscPwm
from blimp.types import Outcome
from tests.service.bench.bench import TWIN_TEXT, Script, With, run

pytestmark = pytest.mark.slow  # in all, tens of seconds of computing

TWIN = airframe.load("twin")
ESCS = """
[[device]]
name = "escs"
chip = "esc-pwm"
bus = "pwm-0"
pins = { pwm0 = 12, pwm1 = 13, pwm2 = 19 }
outputs = { "0" = "left", "1" = "right", "2" = "tail" }
options = { reversible = REVERSIBLE, max_pulse_s = 0.0019 } # as they came

[gains]"""


class Watcher(Script):
    """Sees whether a motor turned while it was asked to, and says so."""

    def __init__(self, ship: Lockstep, *only: str, **answers: str) -> None:
        super().__init__(*only, **answers)
        self._ship = ship
        self.turned = False
        self.ship = With(ship, complete=self.complete)

    def complete(self, name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        outcome = self._ship.command(name, **arguments)
        self._ship.step(0.9)
        self.turned = any(abs(thrust) > 1e-6 for thrust in self._ship.world.physics.thrusts_n)
        self._ship.step(min(within_s, 0.3))
        return self._ship.outcome(outcome.id)

    def answer(self, question: Question) -> str:
        if question.text.casefold().endswith(
            ("did it turn (yes, no)", "did it turn (no, yes)")
        ) and not any(question.text.startswith(key) for key in self.answers):
            return "yes" if self.turned else "no"
        return super().answer(question)


def with_dead_bands(**bands: tuple[float, float]) -> Airframe:
    thrusters = tuple(
        msgspec.structs.replace(t, dead_band=bands[t.name][0], reverse_dead_band=bands[t.name][1])
        if t.name in bands
        else t
        for t in TWIN.thruster
    )
    return msgspec.structs.replace(TWIN, thruster=thrusters)


def test_dead_bands_are_found_to_a_percent(path: Path) -> None:
    true = with_dead_bands(left=(0.12, 0.08), tail=(0.0, 0.055))
    with Lockstep(airframe=true, bench=True) as ship:
        watcher = Watcher(
            ship, "Motors", "Dead bands", Motor_left__turn="skip", Motor_right="skip",
            Did_it_push_right="no",
        )  # fmt: skip
        watcher.answers["Motor left: turn it"] = "skip"
        written, said = run(path, watcher.ship, watcher)
    assert written
    left, right, tail = airframe.load(str(path)).thruster
    # Of the throttle: a battery that is not quite full shifts them up by its share.
    assert 0.12 <= left.dead_band <= 0.12 * 1.02 + 0.01
    assert 0.08 <= left.reverse_dead_band <= 0.08 * 1.02 + 0.01
    assert (right.dead_band, right.reverse_dead_band) == (0.0, 0.0)
    # The tail's bridge was turned round in the same session: so are its two ends.
    assert 0.055 <= tail.dead_band <= 0.055 * 1.02 + 0.01
    assert tail.reverse_dead_band == 0.0
    assert "+dead_band" in said[0]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("left at 30.0 %", "left stands at 30 %, which is no dead band but a fault"),
        ("left at 15.0 %", "left turned at 15.9 % before and does not now"),
    ],
)
def test_a_motor_that_is_not_steady_has_no_dead_band(path: Path, key: str, reason: str) -> None:
    """Dead at 30 %; or once it turned at 15.9 % and then it did not."""
    before = path.read_bytes()
    with Lockstep(airframe="twin", bench=True) as ship:
        script = Script("Dead bands", Motor_right="skip", Motor_tail="skip")
        script.answers[key] = "no"
        seen: list[str] = []

        def answer(question: Question) -> str:
            if question.text.startswith("left at 15.9 %"):
                seen.append(question.text)
                return "yes" if len(seen) == 1 else "no"
            return Script.answer(script, question)

        script.answer = answer  # type: ignore[method-assign]
        assert run(path, ship, script)[0] is False
    assert script.was_asked(reason)
    assert path.read_bytes() == before


# --- ESCs ------------------------------------------------------------------------------------


def esc_file(path: Path, *, reversible: bool = False) -> Airframe:
    """Write the twin with three ESCs on hardware PWM in place of its bridges."""
    text = TWIN_TEXT
    for name in ("motors_main", "motors_tail"):
        start = text.index(f'[[device]]\nname = "{name}"')
        text = text[:start] + text[text.index("[[device]]", start + 1) :]
    text = text.replace("\n[gains]", ESCS.replace("REVERSIBLE", str(reversible).lower()), 1)
    if not reversible:
        text = text.replace("reverse_thrust_n = 0.55", "reverse_thrust_n = 0.0")
        text = text.replace("reverse_thrust_n = 0.40", "reverse_thrust_n = 0.0")
    path.write_text(text, "utf-8")
    return airframe.load(str(path))


def test_an_esc_learns_the_range_of_the_file(path: Path) -> None:
    frame = esc_file(path)
    with Lockstep(airframe=frame, bench=True) as ship:
        chip = ship.world.electronics.chip("escs")
        assert isinstance(chip, EscPwm)
        for esc in chip.escs.values():
            esc.program(0.0013, 0.0018)
        watcher = Watcher(ship, "ESC range", ESCs_of_escs="teach")
        powered = {"take the battery off": "no_answer", "Connect it": "clear"}

        def answer(question: Question) -> str:
            for part, kind in powered.items():
                if part in question.text:
                    ship.fault("escs", kind)
                    ship.step(4.0)
            return Watcher.answer(watcher, question)

        watcher.answer = answer  # type: ignore[method-assign]
        before = path.read_bytes()
        assert run(path, watcher.ship, watcher)[0] is False
        assert path.read_bytes() == before, "the ESC has changed, not the file"
        assert not watcher.was_asked("has not learnt")
        for percent in (50.0, 100.0):
            ship.command("motor", name="left", percent=percent, seconds=1.0)
            ship.step(0.5)
            assert ship.world.outputs["left"] == pytest.approx(percent / 100.0, abs=1e-3)
            ship.step(2.0)


def test_an_esc_that_has_power_is_taught_nothing(path: Path) -> None:
    frame = esc_file(path)
    with Lockstep(airframe=frame, bench=True) as ship:
        watcher = Watcher(ship, "ESC range", ESCs_of_escs="teach")
        highest = 0.0

        def command(name: str, /, **arguments: Any) -> Outcome:
            nonlocal highest
            highest = max(highest, abs(arguments.get("percent", 0.0)))
            return ship.command(name, **arguments)

        watcher.ship.command = command
        run(path, watcher.ship, watcher)
    assert watcher.was_asked("left: its ESC has power at 25 %: nothing was taught")
    assert highest == 0.0, "full pulses with power on"


@pytest.mark.parametrize("end", [KeyboardInterrupt, EOFError])
def test_ctrl_c_and_a_closed_terminal_stop_the_motors(path: Path, end: type[BaseException]) -> None:
    """At the worst moment: full pulses, for half a minute, to an ESC that has power."""
    frame = esc_file(path)
    before = path.read_bytes()
    with Lockstep(airframe=frame, bench=True) as ship:
        script = Script("ESC range", ESCs_of_escs="teach")

        def answer(question: Question) -> str:
            if question.text.startswith("Connect it"):
                ship.step(2.0)
                assert ship.world.outputs["left"] == 1.0
                raise end
            return Script.answer(script, question)

        script.answer = answer  # type: ignore[method-assign]
        with pytest.raises(end):
            run(path, ship, script)
        ship.step(0.1)
        assert ship.world.outputs["left"] == 0.0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("high", "written", "reason"),
    [("1950", True, ""), ("1150", False, "130 µs from end to end, 200 are the least")],
)
def test_a_range_from_the_makers_tool(path: Path, high: str, written: bool, reason: str) -> None:
    frame = esc_file(path, reversible=True)
    answers = {"ESCs of escs": "enter", "The lower end": "1020", "The upper end": high}
    with Lockstep(airframe=frame, bench=True) as ship:
        script = Script("ESC range")
        script.answers |= answers
        assert run(path, ship, script)[0] is written
        assert script.was_asked(reason)
        script.answers["ESCs of escs"] = "teach"
        run(path, ship, script)
        assert script.was_asked("a reversible ESC learns its range from its maker's tool")
    row = next(row for row in airframe.load(str(path)).device if row.name == "escs")
    assert row.options["max_pulse_s"] == (0.00195 if written else 0.0019)
    assert row.options.get("min_pulse_s", 0.001) == (0.00102 if written else 0.001)
    assert "# as they came" in path.read_text("utf-8")
