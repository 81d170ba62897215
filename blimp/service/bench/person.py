"""The person at the bench: what can be asked, and what an answer may be."""

from math import isfinite

from blimp.errors import ConfigError
from blimp.service.computer.initialise import Ask, Question


class Person:
    """Asks until an answer can be used."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def agrees(self, question: str) -> bool:
        return self.choose(question, "yes", "no") == "yes"

    def choose(self, question: str, *choices: str) -> str:
        """Return one of `choices`; the first is the default."""

        def check(answer: str) -> None:
            if answer not in choices:
                raise ConfigError(f"{answer[:20]!r}: {' or '.join(choices)}")

        return self._ask(Question(f"{question} ({', '.join(choices)})", choices[0], check))

    def note(self, text: str) -> None:
        """Say something, and wait until it has been read."""
        self.choose(text, "go on")

    def number(self, question: str, *, default: float, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        rounding = 1e-5 * max(abs(low), abs(high))  # a limit as it is shown must be an answer

        def check(answer: str) -> None:
            try:
                value = float(answer)
            except ValueError:
                raise ConfigError(f"{answer[:20]!r} is not a number") from None
            if not (isfinite(value) and low - rounding <= value <= high + rounding):
                raise ConfigError(f"{value:g} is outside {low:g} to {high:g}")

        answer = float(self._ask(Question(question, f"{default:g}", check)))
        return min(max(answer, low), high)
