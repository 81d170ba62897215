"""Flying missions: on the lockstep ship through the real queue, and through every loss."""

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import pytest

from blimp.clock import ManualClock, SystemClock
from blimp.errors import LinkError
from blimp.tasks.authority import Authority
from blimp.tasks.client import Reply, VehicleClient
from ground_station.flyer import MissionEvent, MissionResult
from ground_station.mission import MissionRunner
from ground_station.mission_file import Mission, load_mission, parse_mission
from tests.ground_station.ship import FlyingShip

UP = '[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 2\n'
THERE = '[[leg]]\ndo = "goto"\nnorth_m = 4\neast_m = -1\naltitude_m = 2\n'
LAND = '[[leg]]\ndo = "land"\n'
TOO_FAR = '[[leg]]\ndo = "goto"\nnorth_m = 999\neast_m = 0\naltitude_m = 2\n'
DASH = '[[leg]]\ndo = "velocity"\nnorth_mps = 0.3\neast_mps = 0\nup_mps = 0\nseconds = 20\n'


def mission(legs: str) -> Mission:
    return parse_mission(f'name = "test"\n{legs}', where="test")


def fly(
    ship: FlyingShip, legs: str, on_event: Callable[[MissionEvent], object] = lambda _: None
) -> MissionResult:
    with VehicleClient(broker=ship.broker.url, vehicle=ship.vehicle) as client:
        return MissionRunner(
            client=client, mission=mission(legs), clock=SystemClock(), on_event=on_event
        ).run()


# --- with a ship ---------------------------------------------------------------------------


def test_a_mission_is_flown_leg_by_leg(twin: FlyingShip) -> None:
    events: list[MissionEvent] = []
    result = fly(twin, UP + THERE + LAND, events.append)
    assert (result.ok, result.completed, result.legs, result.reason) == (True, 4, 4, "")
    assert [report.state for report in result.reports] == ["SUCCESS"] * 4
    assert [report.attempts for report in result.reports] == [1] * 4
    assert len({reply.id for reply in result.replies}) == 4
    truth = twin.ship.truth
    assert truth.on_ground
    assert truth.position_ned_m[0] == pytest.approx(4.0, abs=0.7)
    assert truth.position_ned_m[1] == pytest.approx(-1.0, abs=0.7)
    flown = [event for event in events if event.leg == 3]
    assert (flown[0].stage, flown[-1].stage) == ("started", "SUCCESS")
    assert flown[0].words == "goto 4 -1 2"
    fractions = [e.fraction for e in flown if e.stage == "executing" and e.fraction is not None]
    assert fractions == sorted(fractions)
    assert len(fractions) > 5


def test_a_refused_leg_ends_the_mission_in_a_hold(twin: FlyingShip) -> None:
    result = fly(twin, UP + TOO_FAR + LAND)
    assert (result.state, result.completed) == ("REFUSED", 2)
    assert "leg 3 (goto)" in result.reason
    assert "999" in result.reason
    assert result.reason.endswith("the ship holds its place")
    snapshot = twin.mailbox.snapshot()
    assert snapshot is not None
    assert (snapshot.mode, snapshot.armed) == ("HOLD", True)


def test_a_refused_takeoff_sends_no_hold(twin: FlyingShip) -> None:
    legs = UP.replace("altitude_m = 2", "altitude_m = 119")
    result = fly(twin, legs)
    assert (result.state, result.completed) == ("REFUSED", 1)
    assert "119" in result.reason
    assert [reply.task for reply in result.replies] == ["blimp.arm", "blimp.takeoff"]


def test_a_leg_that_nobody_could_say_whether_it_may_act_is_flown_once_it_is_known(
    twin: FlyingShip, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = Authority.admit
    reasons: list[str] = []
    unknown = "its holder of control is unknown: broker: does not answer"

    def unreachable(authority: Authority, got: object) -> int:
        if unknown not in reasons:
            raise LinkError("broker: does not answer")
        return admit(authority, got)

    monkeypatch.setattr(Authority, "admit", unreachable)
    monkeypatch.setattr("ground_station.mission.START_TTL_S", 0.5)
    legs = '[[leg]]\ndo = "arm"\n[[leg]]\ndo = "disarm"\n'
    result = fly(twin, legs, lambda event: reasons.append(event.reason))
    assert (result.ok, result.ousted) == (True, False)


def test_a_stopped_mission_holds(twin: FlyingShip) -> None:
    def stop(event: MissionEvent) -> None:
        if event.leg == 3 and event.stage == "executing":
            raise KeyboardInterrupt

    result = fly(twin, UP + THERE + LAND, stop)
    assert (result.state, result.completed) == ("INTERRUPTED", 2)
    assert result.reason == ("leg 3 (goto): stopped by the operator; the ship holds its place")


def test_a_broker_that_dies_in_mid_leg_ends_no_mission(mortal: FlyingShip) -> None:
    killed: list[int] = []

    def kill(event: MissionEvent) -> None:
        if event.leg == 3 and event.stage == "executing" and not killed:
            killed.append(mortal.broker.pid)
            os.kill(mortal.broker.pid, signal.SIGKILL)
            while mortal.broker.poll() is None:
                pass
            mortal.broker.start()

    with mortal.worker():
        result = fly(mortal, UP + THERE + LAND, kill)
    assert killed
    assert result.ok, result.reason
    assert mortal.ship.truth.position_ned_m[0] == pytest.approx(4.0, abs=0.7)


def test_without_a_broker_the_mission_ends_in_its_time(tmp_path: Path) -> None:
    url = f"redis+socket://{tmp_path}/none.sock?virtual_host=0"
    clock = ManualClock()
    with VehicleClient(broker=url, vehicle="none", clock=clock) as client:
        result = MissionRunner(
            client=client, mission=load_mission("square"), clock=clock, outage_s=5.0
        ).run()
    assert (result.state, result.completed) == ("TIMEOUT", 0)
    assert "none.sock" in result.reason
    assert 5.0 <= result.duration_s < 40.0


# --- with a script: what cannot be had from a ship on demand --------------------------------


class ScriptedPending:
    """Answers each wait with the next word of its script; TIMEOUT costs the time waited."""

    def __init__(self, id: str, task: str, script: list[str], clock: ManualClock) -> None:
        self.id = id
        self.task = task
        self._script = script
        self._clock = clock
        self.closed = False
        self.is_heard = False
        self.heard_s = -math.inf

    def wait(
        self, timeout_s: float, on_progress: Callable[[str, float | None], None] | None = None
    ) -> Reply:
        word = self._script.pop(0) if self._script else "silence"
        if word == "lost link":
            raise LinkError("no broker at test")
        if word.startswith("executing"):
            self.is_heard, self.heard_s = True, self._clock.now_s()
            if on_progress is not None:
                on_progress("executing", float(word.split()[1]))
        if word == "silence" or word.startswith("executing"):
            self._clock.advance(timeout_s)
            word = "TIMEOUT"
        state, _, reason = word.partition(" ")
        self._clock.advance(0.1)
        return Reply(id=self.id, task=self.task, state=state, reason=reason)  # type: ignore[arg-type]

    def timed_out(self, timeout_s: float) -> Reply:
        latency_ms = 1.0 if self.is_heard else None
        return Reply(id=self.id, task=self.task, state="TIMEOUT", latency_ms=latency_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True


class ScriptedShip:
    """A client whose ship does what a script says, task by task; pings are answered."""

    def __init__(self, clock: ManualClock, **scripts: list[list[str]]) -> None:
        self._clock = clock
        self._scripts = {"ping": [["SUCCESS"]] * 1000} | scripts
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.pendings: list[ScriptedPending] = []
        self.results: dict[str, str] = {}

    def send(
        self, task: str, arguments: dict[str, Any] | None = None, *, ttl_s: float = 5.0
    ) -> ScriptedPending:
        scripts = self._scripts.get(task)
        script = ["SUCCESS"] if scripts is None else scripts.pop(0) if scripts else ["lost link"]
        if script == ["no broker"]:
            raise LinkError("no broker at test")
        if task != "ping":
            self.sent.append((task, arguments or {}))
        pending = ScriptedPending(f"{task}-{len(self.pendings)}", task, list(script), self._clock)
        self.pendings.append(pending)
        return pending

    def result(self, id: str) -> Reply:
        state, _, reason = self.results.get(id, "TIMEOUT").partition(" ")
        return Reply(id=id, task="", state=state, reason=reason)  # type: ignore[arg-type]


def fly_script(
    legs: str,
    *,
    timeout_s: float | None = None,
    results: dict[str, str] | None = None,
    **scripts: list[list[str]],
) -> tuple[MissionResult, ScriptedShip]:
    clock = ManualClock()
    ship = ScriptedShip(clock, **scripts)
    ship.results = results or {}
    client = cast("VehicleClient", ship)
    runner = MissionRunner(client=client, mission=mission(legs), clock=clock, timeout_s=timeout_s)
    result = runner.run()
    assert all(pending.closed for pending in ship.pendings)
    return result, ship


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(["EXPIRED 6 s old"], id="never begun"),
        pytest.param(["INTERRUPTED the worker died"], id="begun and cut off"),
        pytest.param(["silence"] * 20, id="lost before it began"),
        pytest.param(["executing 0.2", *["silence"] * 80], id="lost on the way"),
        pytest.param(["no broker"], id="not sent"),
    ],
)
def test_a_lost_leg_is_sent_again_once_the_ship_answers(first: list[str]) -> None:
    result, ship = fly_script(UP + THERE + LAND, goto=[first, ["executing 0.9", "SUCCESS"]])
    assert result.ok, result.reason
    assert [task for task, _ in ship.sent].count("goto") == 2 - (first == ["no broker"])
    assert result.reports[2].attempts == 2
    assert len({pending.id for pending in ship.pendings}) == len(ship.pendings)


def test_a_leg_that_ended_unheard_is_not_sent_again() -> None:
    result, ship = fly_script(
        UP + THERE + LAND,
        goto=[["executing 0.5", *["silence"] * 200]],
        results={"goto-2": "SUCCESS"},
    )
    assert result.ok, result.reason
    assert [task for task, _ in ship.sent] == ["arm", "takeoff", "goto", "land"]


@pytest.mark.parametrize("end", ["REFUSED superseded by land 7", "SUPERSEDED by a newer one"])
def test_who_takes_the_ship_over_keeps_it(end: str) -> None:
    result, ship = fly_script(UP + THERE + LAND, goto=[[end]])
    assert (result.state, ship.sent[-1][0]) == (end.split()[0], "goto")
    assert "hold" not in result.reason


def test_a_leg_that_is_refused_once_it_is_sent_again_says_why_it_was() -> None:
    result, ship = fly_script(
        UP + THERE + LAND, goto=[["INTERRUPTED reboot"], ["REFUSED disarmed"]]
    )
    assert "disarmed; it was sent again after: reboot" in result.reason
    assert ship.sent[-1] == ("hold", {})


def test_a_leg_goes_on_after_its_link_was_lost() -> None:
    result, _ = fly_script(
        UP + THERE + LAND,
        goto=[["executing 0.1", "lost link", "lost link", "executing 0.8", "SUCCESS"]],
    )
    assert result.ok, result.reason
    assert result.reports[2].attempts == 1


def test_a_leg_is_not_sent_for_ever() -> None:
    result, ship = fly_script(UP + THERE + LAND, goto=[["INTERRUPTED again"]] * 50)
    assert (result.state, result.completed) == ("INTERRUPTED", 2)
    assert 2 <= [task for task, _ in ship.sent].count("goto") <= 10
    assert ship.sent[-1] == ("hold", {})


def test_a_ship_that_stays_silent_ends_the_mission() -> None:
    result, _ = fly_script(
        UP + THERE + LAND,
        goto=[["lost link"]],
        ping=[["silence"]] * 100,
        hold=[["silence"]],
    )
    assert result.state == "TIMEOUT"
    assert "silent for 20 s" in result.reason
    assert result.reason.endswith("hold ended TIMEOUT")


def test_a_slow_leg_that_is_heard_of_is_given_its_time() -> None:
    slow = [f"executing {n / 1000}" for n in range(200)]  # 120 s, never silent
    result, ship = fly_script(UP + THERE + LAND, goto=[[*slow, "SUCCESS"]])
    assert result.ok, result.reason
    slower = [f"executing {n / 1000}" for n in range(999)]
    result, ship = fly_script(UP + THERE + LAND, goto=[slower])
    assert (result.state, result.completed) == ("TIMEOUT", 2)
    assert ship.sent[-1] == ("hold", {})


def test_of_a_velocity_leg_only_the_rest_is_sent_again() -> None:
    first = ["executing 0.1"] * 17 + ["INTERRUPTED the worker died"]  # 6.1 s
    result, ship = fly_script(UP + DASH + LAND, velocity=[first, ["EXPIRED late"], ["SUCCESS"]])
    assert result.ok, result.reason
    seconds = [arguments["seconds"] for task, arguments in ship.sent if task == "velocity"]
    assert seconds[0] == 20.0
    assert seconds[1] == pytest.approx(13.9, abs=0.2)
    assert seconds[2] == seconds[1]


def test_a_mission_has_no_more_time_than_it_is_given() -> None:
    wait = '[[leg]]\ndo = "hold"\nseconds = 30\n'
    slow = [[f"executing {n / 100}" for n in range(99)]]
    for legs in (UP + THERE, UP + wait):
        result, ship = fly_script(legs, timeout_s=12.0, goto=slow)
        assert (result.state, result.completed) == ("TIMEOUT", 2)
        assert "the mission's time is over" in result.reason
        assert 12.0 <= result.duration_s < 13.0
        assert ship.sent[-1] == ("hold", {})
