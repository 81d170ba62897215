"""Which sensors say the same of how far the ship has moved in the last seconds.

Each source is compared by its change over a window, not by its value: offsets of barometers and
frames cancel, and a source that stands still while the ship moves, or moves while it stands still,
contradicts the others. Sources of one group (two rangers that see the same table) have one vote
together; the inertial prediction has half a vote, so that it decides between two sources and never
beats one alone. A source that is outvoted comes back when it has moved with the others: that it
agrees with them while nothing moves proves nothing, a stuck one does too.

Values are floats, or complex numbers for north and east. Source of the idea: mid-value and majority
voting of redundant sensors, Collinson, "Introduction to Avionics Systems" (2011), section 4.3.
"""

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

Value = TypeVar("Value", float, complex)

TICK_S = 0.25  # between two looks at all sources
WINDOW_TICKS = 12  # 3 s: longer than noise, shorter than a flight into the ground
_MODEL_WEIGHT = 0.5  # of the ship's own model against a sensor's one vote
_MOVED_SHARE = 1.2  # of its tolerance a source must have moved, with the others, to come back


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """tolerance: what its change over the window may be wrong by, in its unit."""

    tolerance: float
    group: str = ""  # its own name if empty


class Votes(Generic[Value]):
    """Note every sample, call `tick` when one is due, and ask `outvoted` and `doubt`."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        zero: Value,
        model_tolerance: float,
        tick_s: float = TICK_S,
    ) -> None:
        self._sources = sources
        self._groups = {name: source.group or name for name, source in sources.items()}
        self._zero: Value = zero
        self._tick_s = tick_s
        self._model_tolerance = model_tolerance
        self._sums: dict[str, Value] = {}
        self._counts: dict[str, int] = {}
        self._means: dict[str, deque[Value | None]] = {
            name: deque(maxlen=WINDOW_TICKS + 1) for name in sources
        }
        self._due_s: float | None = None
        self.outvoted: set[str] = set()
        self.changes: dict[str, Value] = {}  # over the window, of the sources that have one
        self.doubt = ""

    def note(self, source: str, value: Value) -> None:
        self._sums[source] = self._sums.get(source, self._zero) + value
        self._counts[source] = self._counts.get(source, 0) + 1

    def forget(self, source: str) -> None:
        """What this source says from now on does not follow from what it said before."""
        self._means[source].clear()

    def exclude(self, source: str) -> None:
        """This source contradicts what is known for certain."""
        self.outvoted.add(source)

    def due(self, now_s: float) -> bool:
        """Whether a tick is due; say so once."""
        due_s = self._due_s
        if due_s is None or not due_s - 2.0 * self._tick_s < now_s < due_s:  # clocks go back, too
            self._due_s = now_s + self._tick_s
            return True
        return False

    def tick(self, predicted: Value | None) -> str:
        """Compare the sources; return the one that is outvoted now, or "".

        predicted: the change over the window by dead reckoning, None if there is none.
        """
        self._gather()
        changes = self.changes
        scores: dict[str, float] = {}
        against: dict[str, bool] = {}
        for name in changes:
            scores[name], against[name] = self._score(name, predicted)
        self._readmit(scores, against)
        return self._outvote(scores, against)

    def _gather(self) -> None:
        self.changes = {}
        for name, means in self._means.items():
            count = self._counts.get(name, 0)
            mean = self._sums[name] / count if count else None
            means.append(mean)
            start = means[0]
            if mean is not None and start is not None and len(means) > WINDOW_TICKS:
                self.changes[name] = mean - start
        self._sums.clear()
        self._counts.clear()

    def _score(self, name: str, predicted: Value | None) -> tuple[float, bool]:
        """Return support minus contradiction by other groups, and whether any contradicts."""
        change, own = self.changes[name], self._sources[name].tolerance
        group = self._groups[name]
        says: dict[str, bool] = {}
        for other, moved in self.changes.items():
            if other == name or other in self.outvoted or self._groups[other] == group:
                continue
            agrees = abs(moved - change) <= own + self._sources[other].tolerance
            says[self._groups[other]] = says.get(self._groups[other], False) or agrees
        score = float(sum(1 if agrees else -1 for agrees in says.values()))
        contradicted = not all(says.values())
        if predicted is not None:
            agrees = abs(predicted - change) <= own + self._model_tolerance
            score += _MODEL_WEIGHT if agrees else -_MODEL_WEIGHT
        return score, contradicted

    def _readmit(self, scores: Mapping[str, float], against: Mapping[str, bool]) -> None:
        for name in tuple(self.outvoted):
            if name not in scores or against[name] or scores[name] <= 0.0:
                continue
            if abs(self.changes[name]) > _MOVED_SHARE * self._sources[name].tolerance:
                self.outvoted.discard(name)

    def _outvote(self, scores: Mapping[str, float], against: Mapping[str, bool]) -> str:
        self.doubt = ""
        accused = [name for name in scores if against[name] and name not in self.outvoted]
        if not accused:
            return ""
        worst = min(accused, key=scores.__getitem__)
        others = [s for s in accused if self._groups[s] != self._groups[worst]]
        clear = not others or min(scores[s] for s in others) - scores[worst] >= _MODEL_WEIGHT
        if clear and scores[worst] < 0.0:
            self.outvoted.add(worst)
            return worst
        if scores[worst] > 0.0:  # more say the same of every one of them
            return ""
        said = ", ".join(f"{name} {_text(self.changes[name])}" for name in accused)
        self.doubt = f"moved by {said}: no two agree"
        return ""

    @property
    def agreed(self) -> bool:
        """Whether two groups or more say the same of the window, and nobody else speaks."""
        groups = {self._groups[name] for name in self.changes if name not in self.outvoted}
        return len(groups) >= 2 and not self.doubt


def _text(change: float | complex) -> str:
    if isinstance(change, complex):
        return f"{change.real:+.1f}, {change.imag:+.1f} m"
    return f"{change:+.1f} m"
