"""A scripted person at the bench, and the ship and the file in front of him."""

from importlib import resources
from pathlib import Path
from typing import Any

from blimp.airframe import Device
from blimp.service.bench import adjust
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip
from blimp.service.bench.steps import STEPS
from blimp.service.computer.initialise import Question

TWIN_TEXT = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")


class Script:
    """Answers a question that begins with a key of `answers`; others by their default.

    only: the steps that are gone through.
    """

    def __init__(self, *only: str, **answers: str) -> None:
        assert set(only) <= set(STEPS)
        self.answers = {f"{step}: begin": "no" for step in STEPS if step not in only}
        self.answers |= {key.replace("_", " "): answer for key, answer in answers.items()}
        self.asked: list[str] = []

    def __call__(self, question: Question) -> str:
        self.asked.append(question.text)
        answer = self.answer(question)
        question.check(answer)
        return answer

    def answer(self, question: Question) -> str:
        for key, answer in self.answers.items():
            if question.text.startswith(key):
                return answer
        return question.default

    def was_asked(self, part: str) -> bool:
        return any(part in text for text in self.asked)


class With:
    """A ship of which a part is another one's."""

    def __init__(self, ship: BenchShip, **parts: object) -> None:
        self.complete = ship.complete
        self.command = ship.command
        self.snapshot = ship.snapshot
        self.step = ship.step
        vars(self).update(parts)


def run(path: Path, ship: BenchShip, script: Script) -> tuple[bool, list[str]]:
    said: list[str] = []
    return adjust(path, ship=ship, person=Person(script), say=said.append), said


def options(devices: tuple[Device, ...], name: str) -> dict[str, Any]:
    return next(row.options for row in devices if row.name == name)
