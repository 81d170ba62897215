"""A model of a pool in a few lists, with which the script is compared."""

from __future__ import annotations

from collections import Counter

TTL_S, PLACE_S = 100_000.0, 10_000.0  # far more than a test takes: only the model's time counts


class Held:
    def __init__(self, *, holder: str, token: int, until_s: float) -> None:
        self.holder = holder
        self.token = token
        self.until_s = until_s
        self.leaving = False


class PoolModel:
    """free: resources by the step at which they became so. ended: by token, how and of whom."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step = 0
        self.free: dict[str, int] = {}
        self.busy: dict[str, Held] = {}
        self.waiting: list[str] = []
        self.patience: dict[str, float] = {}
        self.ended: dict[int, tuple[str, str, str]] = {}
        self.counts: Counter[str] = Counter()

    def free_in_order(self) -> tuple[str, ...]:
        return tuple(sorted(self.free, key=lambda name: (self.free[name], name)))

    def heal(self) -> None:
        """What every visit begins with."""
        self.step += 1
        for name, held in sorted(self.busy.items()):
            if held.until_s <= self.now_s:
                self.end(name, "expired")
                self.counts["expired"] += 1
        for holder, until_s in list(self.patience.items()):
            if until_s <= self.now_s:
                self.leave_line(holder)
                self.counts["gone"] += 1

    def end(self, name: str, how: str) -> None:
        held = self.busy.pop(name)
        self.ended[held.token] = (name, held.holder, how)
        if held.leaving:
            self.counts["removed"] += 1
        else:
            self.free[name] = self.step

    def leave_line(self, holder: str) -> None:
        if holder in self.waiting:
            self.waiting.remove(holder)
            del self.patience[holder]

    def of(self, holder: str) -> str | None:
        return next((name for name, held in self.busy.items() if held.holder == holder), None)

    # --- what is asked of it -----------------------------------------------------------------

    def add(self, name: str) -> bool:
        self.heal()
        if name in self.busy:
            self.busy[name].leaving = False
        elif name not in self.free:
            self.free[name] = self.step
            self.counts["added"] += 1
            return True
        return False

    def remove(self, name: str, *, now: bool) -> bool:
        self.heal()
        if name in self.free:
            del self.free[name]
            self.counts["removed"] += 1
        elif name in self.busy:
            self.busy[name].leaving = True
            if not now:
                return False
            self.end(name, "taken away")
            self.counts["taken_away"] += 1
        return True

    def ask(self, holder: str, *, place_s: float, new_token: bool) -> tuple[str, int | None] | int:
        """Return the resource, and its token where that is known before; or who is before."""
        self.heal()
        own = self.of(holder)
        if own is not None:
            held = self.busy[own]
            known: int | None = held.token
            if new_token:
                self.ended[held.token] = (own, holder, "superseded")
                self.counts["superseded"] += 1
                known = None
            held.until_s = self.now_s + TTL_S
            self.counts["again"] += 1
            self.leave_line(holder)
            return own, known
        waits = holder in self.waiting
        before = self.waiting.index(holder) if waits else len(self.waiting)
        if before < len(self.free):
            name = self.free_in_order()[0]
            del self.free[name]
            self.busy[name] = Held(holder=holder, token=0, until_s=self.now_s + TTL_S)
            self.counts["acquired"] += 1
            self.leave_line(holder)
            return name, None
        if place_s:
            if not waits:
                self.waiting.append(holder)
            self.patience[holder] = self.now_s + place_s
        else:
            self.leave_line(holder)
            self.counts["refused"] += 1
        return before

    def holds(self, name: str, token: int, holder: str) -> bool:
        held = self.busy.get(name)
        return held is not None and (held.token, held.holder) == (token, holder)

    def renew(self, name: str, token: int, holder: str) -> bool:
        self.heal()
        if not self.holds(name, token, holder):
            self.counts["lost"] += 1
            return False
        self.busy[name].until_s = self.now_s + TTL_S
        self.counts["renewed"] += 1
        return True

    def release(self, name: str, token: int, holder: str) -> str:
        self.heal()
        if self.holds(name, token, holder):
            self.end(name, "released")
            self.counts["released"] += 1
            return "released"
        past = self.ended.get(token)
        if past is None or past[:2] != (name, holder):
            self.counts["forged"] += 1
            return "forged"
        if past[2] != "released":
            self.counts["stale"] += 1
            return past[2]
        self.counts["double_released"] += 1
        return "already released"

    def take_away(self, name: str) -> str | None:
        self.heal()
        if name not in self.busy:
            return None
        holder = self.busy[name].holder
        self.end(name, "taken away")
        self.counts["taken_away"] += 1
        return holder

    def dismiss(self, holder: str) -> str | None:
        self.heal()
        self.leave_line(holder)
        own = self.of(holder)
        if own is not None:
            self.end(own, "released")
            self.counts["released"] += 1
        return own
