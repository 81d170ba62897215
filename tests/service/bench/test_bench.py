"""The bench: a scripted person, a ship in Lockstep, and the file that comes out."""

from collections.abc import Iterator
from importlib import resources
from math import degrees, radians
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.errors import BlimpError, ConfigError
from blimp.service.bench import adjust
from blimp.service.bench.accelerometer import G_MPS2, POSITIONS, Calibration, solve
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.bench.ship import Ship
from blimp.service.bench.steps import direction, positive
from blimp.service.initialise import Question
from blimp.sim import Lockstep
from blimp.types import Outcome, Snapshot, Vec3

TWIN = airframe.load("twin")


class Script:
    """Answers a question that begins with a key of `answers`; others by their default."""

    def __init__(self, **answers: str) -> None:
        self.answers = {key.replace("_", " "): answer for key, answer in answers.items()}
        self.asked: list[str] = []

    def __call__(self, question: Question) -> str:
        self.asked.append(question.text)
        for key, answer in self.answers.items():
            if question.text.startswith(key):
                question.check(answer)
                return answer
        return question.default


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    text = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")
    file.write_text(text, encoding="utf-8")
    file.chmod(0o640)
    return file


@pytest.fixture
def ship() -> Iterator[Lockstep]:
    with Lockstep(airframe="twin", bench=True) as ship:
        yield ship


def run(path: Path, ship: Ship, script: Script) -> tuple[bool, list[str]]:
    said: list[str] = []
    return adjust(path, ship=ship, person=Person(script), say=said.append), said


def changed(path: Path) -> list[str]:
    before = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8").splitlines()
    after = path.read_text("utf-8").splitlines()
    assert len(after) == len(before)
    return [line for old, line in zip(before, after, strict=True) if old != line]


# --- who may ---------------------------------------------------------------------------------


def test_a_ship_that_is_not_on_the_bench_is_left_alone(path: Path) -> None:
    script = Script()
    with Lockstep(airframe="twin") as ship, pytest.raises(BlimpError, match="start with --bench"):
        run(path, ship, script)
    assert script.asked == []


def test_an_armed_ship_and_another_ship_are_left_alone(path: Path, ship: Lockstep) -> None:
    ship.complete("arm", within_s=5.0)
    with pytest.raises(BlimpError, match="the ship is armed: disarm it first"):
        run(path, ship, Script())
    with (
        Lockstep(airframe="gtmab", bench=True) as other,
        pytest.raises(BlimpError, match="fly the airframe of this file"),
    ):
        run(path, other, Script())


# --- motors and servos -----------------------------------------------------------------------


def test_nothing_to_change_writes_nothing(path: Path, ship: Lockstep) -> None:
    before = path.read_bytes()
    written, said = run(path, ship, Script(Accelerometer="no"))
    assert (written, said) == (False, ["nothing to change"])
    assert path.read_bytes() == before


def test_each_motor_turns_when_it_is_asked_for_and_no_other(path: Path, ship: Lockstep) -> None:
    turning: list[list[str]] = []
    script = Script(Servos="no", Accelerometer="no")

    def complete(name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        outcome = ship.command(name, **arguments)
        ship.step(0.5)
        outputs = ship.world.outputs
        turning.append([n for n in TWIN.thruster_names if outputs[n] > 0.1])
        ship.step(within_s)
        return ship.outcome(outcome.id)

    run(path, _With(ship, complete=complete), script)
    assert turning == [[], ["left"], ["right"], ["tail"]]


def test_a_motor_that_turns_the_wrong_way_has_its_pins_swapped(path: Path, ship: Lockstep) -> None:
    answers = {"Did it push right": "no", "Servos": "no", "Accelerometer": "no"}
    script = Script()
    script.answers = answers
    written, said = run(path, ship, script)
    assert written
    assert changed(path) == ["pins = { ain1 = 20, ain2 = 16, nsleep = 21 }"]
    assert "-pins = { ain1 = 16, ain2 = 20, nsleep = 21 }" in said[0]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_person_who_does_not_agree_keeps_the_file(path: Path, ship: Lockstep) -> None:
    before = path.read_bytes()
    script = Script(Servos="no", Accelerometer="no", Did_it_push_right="no", Write_this="no")
    assert run(path, ship, script)[0] is False
    assert path.read_bytes() == before


def test_a_servo_is_moved_to_its_ends_and_its_centre(path: Path, ship: Lockstep) -> None:
    answers = {"Motors": "no", "Accelerometer": "no", "Servo tilt": "skip", "Servo rudder": "skip"}
    seen = []

    def ask(question: Question) -> str:
        if question.text[0] in "IT":
            seen.append(round(degrees(ship.world.outputs["elevator"])))
        return script(question)

    script = Script()
    script.answers = answers
    adjust(path, ship=ship, person=Person(ask), say=lambda _: None)
    assert seen == [15, 0, -34, 34]


def test_a_reversed_servo_that_is_off_its_centre(path: Path, ship: Lockstep) -> None:
    script = Script()
    script.answers = {
        "Motors": "no", "Accelerometer": "no", "Servo tilt": "skip", "Servo rudder": "skip",
        "It stands at 15 degrees": "no", "It should stand": "5", "The last angle before 34": "20",
    }  # fmt: skip
    run(path, ship, script)
    servo = airframe.load(str(path)).servo[1]
    assert servo.max_rad == pytest.approx(radians(20.0))
    assert servo.min_rad == -0.6
    before = TWIN.servo[1]

    def pulse_s(servo: airframe.Servo, angle: float) -> float:
        share = (angle - servo.min_rad) / (servo.max_rad - servo.min_rad)
        return servo.min_pulse_s + share * (servo.max_pulse_s - servo.min_pulse_s)

    # At the old neutral pulse it stands at 5 degrees; the other way round is positive.
    assert pulse_s(servo, radians(5.0)) == pytest.approx(pulse_s(before, 0.0), abs=2e-6)
    slope = (pulse_s(servo, 0.1) - pulse_s(servo, 0.0)) / (
        pulse_s(before, 0.1) - pulse_s(before, 0.0)
    )
    assert slope == pytest.approx(-1.0, abs=0.01)
    assert "# positive" in path.read_text("utf-8")  # comments stay


def test_what_a_person_is_asked_to_see() -> None:
    assert [direction(t.axis) for t in TWIN.thruster] == ["forward", "forward", "right"]
    assert positive("tilt", TWIN) == "the propellers up"
    assert positive("elevator", TWIN) == "its trailing edge up"
    assert positive("rudder", TWIN) == "its trailing edge right"


# --- the accelerometer -----------------------------------------------------------------------


class _With:
    """A ship of which a part is another one's."""

    def __init__(self, ship: Ship, **parts: object) -> None:
        self.complete = ship.complete
        self.snapshot = ship.snapshot
        self.step = ship.step
        vars(self).update(parts)


class Turned:
    """A ship that is put into a position, with an accelerometer that is off."""

    def __init__(self, ship: Lockstep) -> None:
        self._ship = ship
        self._random = Random(1)
        self.position = POSITIONS[0]
        self.rate_radps = 0.0

    def reading(self) -> Vec3:
        true = [0.0, 0.0, 0.0]
        true[self.position.axis] = self.position.sign * G_MPS2
        x, y, z = (
            value / scale + bias + self._random.gauss(0.0, 0.02)
            for value, scale, bias in zip(true, (1.02, 0.99, 1.0), (0.3, -0.2, 0.1), strict=True)
        )
        return x, y, z

    def snapshot(self) -> Snapshot:
        snapshot = self._ship.snapshot()
        value = (*self.reading(), self.rate_radps, 0.0, 0.0)
        imu = msgspec.structs.replace(snapshot.sensors["imu"], value=value)
        return msgspec.structs.replace(snapshot, sensors={**snapshot.sensors, "imu": imu})


def test_six_positions_give_bias_and_scale(path: Path, ship: Lockstep) -> None:
    turned = Turned(ship)
    wrong = iter([True])

    def ask(question: Question) -> str:
        text = question.text
        for position in POSITIONS:
            if text.startswith(f"Put the board {position.name} "):
                turned.position = position
                if position.name == "nose up" and next(wrong, False):
                    turned.position = POSITIONS[0]  # it was not turned: asked again
        script.asked.append(text)
        return "no" if text.startswith(("Motors", "Servos")) else question.default

    script = Script()
    slow = _With(ship, snapshot=turned.snapshot, step=lambda _: None)
    assert adjust(path, ship=slow, person=Person(ask), say=lambda _: None)
    assert sum(text.startswith("Put the board nose up ") for text in script.asked) == 2
    options = next(r for r in airframe.load(str(path)).device if r.name == "imu").options
    assert options["accel_bias_mps2"] == pytest.approx([0.3, -0.2, 0.1], abs=0.02)
    assert options["accel_scale"] == pytest.approx([1.02, 0.99, 1.0], abs=0.003)


def test_a_board_that_moves_is_measured_again(path: Path, ship: Lockstep) -> None:
    turned = Turned(ship)
    turned.rate_radps = 1.0
    answers = iter(["ready", "go on", "stop"])
    asked = []

    def ask(question: Question) -> str:
        asked.append(question.text)
        if question.text.startswith(("Put the board", "it turned")):
            return next(answers)
        return "no" if question.text.startswith(("Motors", "Servos")) else question.default

    slow = _With(ship, snapshot=turned.snapshot, step=lambda _: None)
    assert adjust(path, ship=slow, person=Person(ask), say=lambda _: None) is False
    assert any(text.startswith("it turned at 1.00 rad/s: again") for text in asked)


def test_a_calibration_comes_after_the_one_that_is_in_force() -> None:
    first = Calibration(bias_mps2=(0.5, 0.0, -0.1), scale=(1.1, 1.0, 0.9))
    second = Calibration(bias_mps2=(0.2, -0.1, 0.3), scale=(0.95, 1.02, 1.0))
    both = second.after(first)
    for axis, raw in enumerate((9.0, -3.0, 1.0)):
        once = (raw - first.bias_mps2[axis]) * first.scale[axis]
        twice = (once - second.bias_mps2[axis]) * second.scale[axis]
        assert (raw - both.bias_mps2[axis]) * both.scale[axis] == pytest.approx(twice)
    perfect = {p.name: _at(p.axis, p.sign * G_MPS2) for p in POSITIONS}
    found = solve(perfect)
    assert found.bias_list() == [0.0, 0.0, 0.0]
    assert found.scale_list() == [1.0, 1.0, 1.0]


def _at(axis: int, value: float) -> Vec3:
    x, y, z = (value if i == axis else 0.0 for i in range(3))
    return x, y, z


def test_a_file_that_is_no_airframe_any_more_is_not_written(path: Path) -> None:
    before = path.read_bytes()
    file = AirframeFile(path)
    file.set_options("imu", accel_scale="wrong")
    file._document["name"] = "No Name"
    with pytest.raises(ConfigError, match="name"):
        file.write()
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match=r"none\.toml"):
        AirframeFile(path.with_name("none.toml"))


def test_a_number_is_a_number_within_its_limits() -> None:
    answers = iter(["x", "nan", "50", "-3.5"])
    said: list[str] = []

    def ask(question: Question) -> str:
        while True:
            answer = next(answers)
            try:
                question.check(answer)
            except ConfigError as error:
                said.append(str(error))
            else:
                return answer

    assert Person(ask).number("How far", default=0.0, low=-45.0, high=45.0) == -3.5
    assert said == ["'x' is no number", "nan is outside -45 to 45", "50 is outside -45 to 45"]
