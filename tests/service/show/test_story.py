"""The show's scenes come where they belong, once, and their story says what was measured."""

import threading
from collections.abc import Callable

import pytest

from blimp.clock import ManualClock
from blimp.errors import BlimpError, ConfigError
from blimp.service.show.chaos import ChaosReport
from blimp.service.show.story import (
    MISSION,
    PHOTOGRAPH,
    SCENES,
    Card,
    Photographed,
    Show,
    cause_of,
    chosen,
)
from ground_station.flyer import MissionEvent


def event(leg: int, stage: str, *, fraction: float | None = None, do: str = "goto") -> MissionEvent:
    return MissionEvent(leg=leg, legs=8, do=do, words=do, stage=stage, fraction=fraction)


def test_each_scene_is_played_once_when_its_leg_has_come_so_far() -> None:
    said: list[str] = []
    done: list[str] = []
    faults: list[str] = []

    def action(name: str) -> Callable[[], ChaosReport]:
        def act() -> ChaosReport:
            done.append(name)
            return ChaosReport(action=name, down_s=0.7, sentence=f"{name} is over.")

        return act

    actions = {scene.action: action(scene.action) for scene in SCENES}
    show = Show(
        actions=actions, tell=said.append, fault=faults.append, clock=ManualClock()
    )  # fmt: skip
    show.hear(event(1, "started", do="arm"))
    show.hear(event(3, "started"))
    show.hear(event(3, "executing", fraction=0.1))
    show.close()
    assert done == []
    for fraction in (0.3, 0.4):
        show.hear(event(3, "executing", fraction=fraction))
    show.close()
    assert done == ["kill-worker"]
    assert faults == ["kill-worker", ""], "the chain shows what is killed, and when that is over"
    assert said[-1] == "kill-worker is over."
    show.hear(event(4, "started", do="hold"))
    show.hear(event(7, "started"))  # the mission has gone on without the last scene
    show.close()
    assert done == ["kill-worker", "blind-position"]
    assert [report.action for report in show.reports] == done


def test_scenes_are_chosen_by_their_names() -> None:
    assert chosen("all", mission=MISSION) == SCENES
    assert chosen("none", mission=MISSION) == chosen("all", mission="square") == ()
    two = chosen("stop-broker, kill-worker", mission=MISSION)
    assert [scene.action for scene in two] == ["kill-worker", "stop-broker"]
    with pytest.raises(ConfigError, match=r"must be all, none or of kill-worker, .*'kil-worker'"):
        chosen("kil-worker", mission=MISSION)
    with pytest.raises(ConfigError, match="belongs to the mission 'show', not to 'hop'"):
        chosen("kill-worker", mission="hop")


def test_a_scene_that_fails_is_said_and_counts_for_nothing() -> None:
    said: list[str] = []
    refused = threading.Event()

    def fails() -> ChaosReport:
        refused.set()
        raise BlimpError("no process 'worker' runs in this stack")

    show = Show(actions={"kill-worker": fails}, tell=said.append, clock=ManualClock())
    show.hear(event(3, "executing", fraction=0.5))
    show.close()
    assert refused.is_set()
    assert "no process" in said[-1]
    assert show.reports == []


def test_a_photograph_is_a_scene_and_no_fault() -> None:
    said: list[str] = []
    faults: list[str] = []
    show = Show(
        actions={"photograph": lambda: Photographed("Photographed.")}, tell=said.append,
        fault=faults.append, clock=ManualClock(), scenes=(PHOTOGRAPH,),
    )  # fmt: skip
    show.hear(event(5, "executing", fraction=0.4))
    show.close()
    assert said == [PHOTOGRAPH.before, "Photographed."]
    assert (faults, show.reports) == ([], [])


def test_the_one_cause_is_what_explains_the_others() -> None:
    hung = {"event": "hung", "process": "fly", "silent_s": 0.62}
    well = ChaosReport(action="kill-worker", down_s=0.7, back_ms=700.0, sentence="Well.")
    fell = ChaosReport(
        action="kill-flight", down_s=3.0, back_ms=None, lost="x", sentence="It sinks."
    )
    reason = "leg 4: INTERRUPTED"
    assert cause_of(reason, faults=[well], events=[{"event": "restarted"}]) == reason
    assert cause_of(reason, faults=[well, fell], events=[]) == "It sinks."
    assert cause_of(reason, faults=[fell], events=[hung]) == (
        "fly did not answer for 0.62 s and was restarted: this machine has too much else to do"
    )
    card = Card(
        title="twin ended early (simulated)", cause="It sinks.", rows=(("legs flown", "3 of 8"),),
        faults=(("It sinks.", False),),
    )  # fmt: skip
    assert card.lines() == [card.title, "because: It sinks.", "legs flown: 3 of 8", "It sinks."]
