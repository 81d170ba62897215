"""Tuning in flight: it stays in its box, and whatever goes wrong ends it in HOLD."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blimp import airframe as airframes
from blimp.clock import ManualClock
from blimp.errors import BlimpError
from blimp.service.bench.ship import MailboxShip
from blimp.service.tune import autotune
from blimp.service.tune.track import with_pose_sensor
from blimp.ship import Lockstep
from blimp.types import Command, Outcome, Snapshot

pytestmark = pytest.mark.long

SHIP = with_pose_sensor(airframes.load("gtmab"), "mocap")


@pytest.fixture(scope="module")
def hovering() -> Iterator[Lockstep]:
    with Lockstep(SHIP, seed=3) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, altitude_m=1.5)
        yield ship


class Disturbed:
    """A ship to which something happens four seconds after the tuning has begun."""

    def __init__(self, ship: Lockstep, event: Callable[[], object]) -> None:
        self._ship, self._event = ship, event
        self._at_s: float | None = ship.now_s + 4.0
        self.command, self.snapshot, self.complete = ship.command, ship.snapshot, ship.complete

    def step(self, seconds: float) -> None:
        if self._at_s is not None and self._ship.now_s >= self._at_s:
            self._at_s = None
            self._event()
        self._ship.step(seconds)


def broken_off(ship: Lockstep, event: Callable[[], object]) -> str:
    ship.command("hold")
    ship.step(3.0)
    began_s = ship.now_s
    with pytest.raises(BlimpError) as error:
        autotune.excite(Disturbed(ship, event), SHIP, steers=False)
    assert ship.now_s - began_s < 60.0
    return str(error.value)


def test_a_pilot_who_takes_the_ship_over_keeps_it(hovering: Lockstep) -> None:
    def takes() -> None:
        hovering.command("velocity", north_mps=0.0, east_mps=0.0, up_mps=0.05, seconds=3.0)

    assert "taken over: it is in VELOCITY" in broken_off(hovering, takes)
    assert hovering.snapshot().mode == "VELOCITY"


def test_a_failsafe_ends_it(hovering: Lockstep) -> None:
    def lost() -> None:
        hovering.link_up = False

    assert "link" in broken_off(hovering, lost)
    hovering.link_up = True
    hovering.step(1.0)
    assert hovering.snapshot().mode == "HOLD"


def test_a_ship_that_leaves_its_box_holds(hovering: Lockstep, monkeypatch: Any) -> None:
    monkeypatch.setattr(autotune, "BOX_M", 0.3)
    assert "left its box" in broken_off(hovering, lambda: None)
    assert hovering.snapshot().mode == "HOLD"


def test_it_does_not_begin_without_a_hover_or_room(hovering: Lockstep) -> None:
    hovering.command("hold")
    now = hovering.snapshot()

    def refused(**changes: Any) -> str:
        fields = {name: getattr(now, name) for name in now.__struct_fields__}
        with pytest.raises(BlimpError) as error:
            autotune.path(Snapshot(**{**fields, **changes}), SHIP, steers=False)
        return str(error.value)

    assert refused(mode="AUTO") == "the ship is in AUTO, armed: let it hover in HOLD first"
    assert "HOLD, disarmed" in refused(armed=False)
    assert "link lost" in refused(failsafe="link lost: holding")
    assert "hovers at 1.0 m: tuning takes 0.4 m" in refused(altitude_m=1.0)


def test_its_path_stays_within_the_box_and_the_limits(hovering: Lockstep) -> None:
    now = hovering.snapshot()
    curve = autotune.path(now, SHIP, steers=False)
    n, e, d = now.position_ned_m
    for row in curve.rows:
        assert max(abs(row[1] - n), abs(row[2] - e), abs(row[3] - d)) < 0.5 * autotune.BOX_M + 0.01
    assert curve.duration_s < 0.5 * autotune.MAX_S
    steered = autotune.path(now, SHIP, steers=True)
    assert steered.duration_s < curve.duration_s


class Mailbox:
    """The client's two calls, straight to a ship in Lockstep."""

    def __init__(self, ship: Lockstep) -> None:
        self._ship = ship

    def call(self, command: Command, *, timeout_s: float) -> Outcome:
        return self._ship.deliver(command)


def test_it_commands_while_nobody_holds_control_and_never_in_a_pilots_name(
    hovering: Lockstep,
) -> None:
    def by(authority: int, number: int) -> None:
        arguments = {"north_mps": 0.0, "east_mps": 0.0, "up_mps": 0.0, "seconds": 1.0}
        command = Command(
            id=f"by-{number}", name="velocity", arguments=arguments, authority=authority
        )
        assert hovering.deliver(command).state != "refused"

    def asks(ship: MailboxShip) -> str:
        return str(
            ship.command("velocity", north_mps=0.0, east_mps=0.0, up_mps=0.0, seconds=1.0).state
        )

    def ship() -> MailboxShip:
        return MailboxShip(Mailbox(hovering), clock=ManualClock())  # type: ignore[arg-type]

    by(5, 1)  # nobody holds control
    before = ship()
    assert asks(before) == "in_progress"
    by(6, 2)  # a pilot does
    assert asks(before) == "refused"
    assert asks(ship()) == "refused"
    by(7, 3)
    assert asks(ship()) == "in_progress"
