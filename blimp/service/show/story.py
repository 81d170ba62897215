"""The show: a mission with faults at set places, the story of them, line by line, and its end.

What is said of a fault after it is the report's own sentence, about the ship.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from blimp.clock import Clock
from blimp.errors import BlimpError, ConfigError
from blimp.service.show.chaos import ChaosReport
from blimp.suggest import suggestion
from ground_station.flyer import MissionEvent

MISSION = "show"

Tell = Callable[[str], None]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, or what the ship is asked for. It begins once `fraction` of the leg `leg` is done,
    and after `wait_s`."""

    leg: int
    fraction: float
    action: str
    before: str
    wait_s: float = 0.0


# For the legs of `ground_station/missions/show.toml`.
SCENES = (
    Scene(
        leg=3, fraction=0.25, action="kill-worker",
        before="Now the worker is killed, in the middle of the leg.",
    ),
    Scene(
        leg=4, fraction=0.0, wait_s=0.7, action="blind-position",
        before="Now both position sensors go blind.",
    ),
    Scene(
        leg=6, fraction=0.0, wait_s=0.7, action="stop-broker",
        before="Now the broker stops: no command reaches the ship.",
    ),
)  # fmt: skip

# Of a ship with a camera, unless it flies without scenes
PHOTOGRAPH = Scene(
    leg=5, fraction=0.3, action="photograph",
    before="Now it takes a photograph: a task of the queue, as every command.",
)  # fmt: skip

ALL, NONE = "all", "none"


def chosen(words: str, *, mission: str) -> tuple[Scene, ...]:
    """Return the scenes of `words`: names with commas between them, `all` or `none`.

    Raises ConfigError naming what is known, and for scenes of a mission that has none.
    """
    known = {scene.action: scene for scene in SCENES}
    if words == NONE or (words == ALL and mission != MISSION):
        return ()
    if words == ALL:
        return SCENES
    if mission != MISSION:
        raise ConfigError(f"--scenes belongs to the mission {MISSION!r}, not to {mission!r}")
    names = [name.strip() for name in words.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--scenes must be {ALL}, {NONE} or of {', '.join(known)}, not {name[:40]!r}"
                f"{suggestion(name, known)}"
            )
    return tuple(scene for scene in SCENES if scene.action in names)


LINES = {
    "arm": "Armed: the propellers may turn.",
    "takeoff": "Take-off: the command goes through the queue.",
    "land": "Home again: it lands and disarms.",
}


class Photographed(NamedTuple):
    """How the scene of a photograph ended, in words."""

    sentence: str


class Show:
    """Plays the scenes as the mission comes to them. tell: gets each line of the story.

    fault: gets the name of each as it begins, and "" once it is over.
    """

    def __init__(
        self,
        *,
        actions: Mapping[str, Callable[[], ChaosReport | Photographed]],
        tell: Tell,
        fault: Tell = lambda _: None,
        clock: Clock,
        scenes: Sequence[Scene] = SCENES,
    ) -> None:
        self._clock = clock
        self._actions = actions
        self._tell = tell
        self._fault = fault
        self._waiting = list(scenes)
        self._threads: list[threading.Thread] = []
        self.reports: list[ChaosReport] = []

    def hear(self, event: MissionEvent) -> None:
        """Take what the mission reports; returns at once."""
        if event.stage == "started" and event.do in LINES:
            self._tell(LINES[event.do])
        is_under_way = event.stage in ("started", "executing")
        for scene in [s for s in self._waiting if s.leg <= event.leg]:
            if scene.leg < event.leg:
                self._waiting.remove(scene)  # its leg has passed without it
            elif is_under_way and (event.fraction or 0.0) >= scene.fraction:
                self._waiting.remove(scene)
                thread = threading.Thread(target=self._play, args=(scene,), name=scene.action)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Wait for the scene that is under way."""
        for thread in self._threads:
            thread.join()

    def _play(self, scene: Scene) -> None:
        self._clock.sleep_until(self._clock.now_s() + scene.wait_s)
        self._tell(scene.before)
        if scene is not PHOTOGRAPH:
            self._fault(scene.action)
        try:
            report = self._actions[scene.action]()
        except (BlimpError, OSError) as error:
            self._tell(f"{scene.action} did not go as it should: {error}")
            return
        finally:
            if scene is not PHOTOGRAPH:
                self._fault("")
        if isinstance(report, ChaosReport):
            self.reports.append(report)
        self._tell(report.sentence)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a demo, in the words of the terminal and of the page's card.

    cause: the one plain reason why it was not flown, "" if it was. rows: names and values. faults:
    the sentence of each, and whether the ship was well after it.
    """

    title: str
    cause: str
    rows: tuple[tuple[str, str], ...]
    faults: tuple[tuple[str, bool], ...]

    def lines(self) -> list[str]:
        """Return the card as a terminal prints it."""
        cause = [f"because: {self.cause}"] if self.cause else []
        rows = [f"{name}: {value}" for name, value in self.rows]
        return [self.title, *cause, *rows, *(words for words, _ in self.faults)]


def cause_of(
    reason: str, *, faults: Sequence[ChaosReport], events: Sequence[Mapping[str, Any]]
) -> str:
    """Return the one plain cause why a mission was not flown.

    reason: the mission's. events: the supervisor's. What came first in this order explains the
    others: a process that got no processor, a fault that took the ship's power.
    """
    for event in events:
        if event["event"] == "hung":
            return (
                f"{event['process']} did not answer for {event['silent_s']:.2f} s and was "
                "restarted: this machine has too much else to do"
            )
    return next((one.sentence for one in faults if one.lost), reason)
