"""The bench: a scripted person, a ship in Lockstep, and the file that comes out."""

from math import degrees, radians
from pathlib import Path
from typing import Any

import pytest

from blimp import airframe
from blimp.errors import BlimpError, ConfigError
from blimp.service.bench import adjust
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.computer.initialise import Question
from blimp.ship import Lockstep
from blimp.types import Outcome
from tests.service.bench.bench import TWIN_TEXT, Script, With, run

pytestmark = pytest.mark.slow  # in all, tens of seconds of computing

TWIN = airframe.load("twin")


def changed(path: Path) -> list[str]:
    before = TWIN_TEXT.splitlines()
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
    written, said = run(path, ship, Script("Motors", "Servos"))
    assert (written, said) == (False, ["nothing to change"])
    assert path.read_bytes() == before


def test_each_motor_turns_when_it_is_asked_for_and_no_other(path: Path, ship: Lockstep) -> None:
    turning: list[list[str]] = []
    script = Script("Motors")

    def complete(name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        outcome = ship.command(name, **arguments)
        ship.step(0.5)
        outputs = ship.world.outputs
        turning.append([n for n in TWIN.thruster_names if outputs[n] > 0.1])
        ship.step(within_s)
        return ship.outcome(outcome.id)

    run(path, With(ship, complete=complete), script)
    assert turning[:4] == [[], ["left"], ["right"], ["tail"]]
    assert not any(turning[4:]), "at the end all stand"


def test_a_motor_that_turns_the_wrong_way_has_its_pins_swapped(path: Path, ship: Lockstep) -> None:
    script = Script("Motors", Did_it_push_right="no")
    written, said = run(path, ship, script)
    assert written
    assert changed(path) == ["pins = { ain1 = 20, ain2 = 16, nsleep = 21 }"]
    assert "-pins = { ain1 = 16, ain2 = 20, nsleep = 21 }" in said[0]
    assert said[1].startswith(f"{path} written; next: restart the flight process")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_person_who_does_not_agree_keeps_the_file(path: Path, ship: Lockstep) -> None:
    before = path.read_bytes()
    script = Script("Motors", Did_it_push_right="no", Write_this="no")
    assert run(path, ship, script)[0] is False
    assert path.read_bytes() == before


def test_a_servo_is_moved_to_its_ends_and_its_centre(path: Path, ship: Lockstep) -> None:
    seen = []

    def ask(question: Question) -> str:
        if question.text[0] in "IT":
            seen.append(round(degrees(ship.world.outputs["elevator"])))
        return script(question)

    script = Script("Servos", Servo_tilt="skip", Servo_rudder="skip")
    adjust(path, ship=ship, person=Person(ask), say=lambda _: None)
    assert seen == [15, 0, -34, 34]


def test_a_reversed_servo_that_is_off_its_centre(path: Path, ship: Lockstep) -> None:
    script = Script(
        "Servos", Servo_tilt="skip", Servo_rudder="skip", It_stands_at_15_degrees="no",
        It_should_stand="5", The_last_angle_before_34="20",
    )  # fmt: skip
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


# --- the file and the answers ------------------------------------------------------------------


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
    assert said == ["'x' is not a number", "nan is outside -45 to 45", "50 is outside -45 to 45"]
