"""What is sent to the outputs, and for how long a ship does otherwise."""

import pytest

from blimp.control.actuation import Actuation
from blimp.control.controller import Controller
from blimp.control.effect import EffectCheck, Fault
from blimp.control.mixer import Mixer
from blimp.types import Setpoint, VehicleState
from blimp.wires.wrong import Wrong
from tests.control.parts import Alone, at, twin

SINK = Setpoint(velocity_ned_mps=(0.0, 0.0, 0.3))
DT_S = 0.02


def made() -> tuple[Actuation, Alone]:
    """Of a ship that is armed and in the air."""
    ship, mixer = Alone(), Mixer(airframe=twin())
    controller = Controller(
        airframe=twin(),
        force_limit_n=(mixer.limit_n(0), mixer.limit_n(1), mixer.limit_n(2)),
        yaw_limit_nm=mixer.limit_n(5),
    )
    actuation = Actuation(
        controller=controller,
        mixer=mixer,
        effect=EffectCheck(airframe=twin()),
        supervisor=ship.supervisor,
        pilot=ship.pilot,
    )
    return actuation, ship


def moving(down_mps: float, *, on_ground: bool = False) -> VehicleState:
    return at(altitude_m=3.0, velocity_ned_mps=(0.0, 0.0, down_mps), on_ground=on_ground)


def sent(
    state: VehicleState,
    setpoint: Setpoint = SINK,
    *,
    seconds: float = 3.0,
    powered: bool = True,
) -> Actuation:
    actuation, _ = made()
    for _ in range(round(seconds / DT_S)):
        actuation.allocate(state, setpoint, unhealthy=(), dt_s=DT_S)
        actuation.watch(state, setpoint, powered=powered, dt_s=DT_S)
    return actuation


def test_a_ship_that_is_sent_down_and_rises_is_counted() -> None:
    assert sent(moving(-0.3)).rising_s > 1.4
    for state in (moving(0.3), moving(-0.05), moving(-0.3, on_ground=True)):
        assert sent(state).rising_s == 0.0
    assert sent(moving(-0.3), powered=False).rising_s == 0.0
    assert sent(moving(-0.3), Setpoint(idle=True)).rising_s == 0.0


def test_a_ship_that_rises_faster_than_it_floats_is_driven_up() -> None:
    assert sent(moving(-2.0)).driven_up
    assert not sent(moving(2.0)).driven_up


def test_after_four_seconds_of_pushing_in_vain_height_goes_first() -> None:
    aside = Setpoint(position_ned_m=(9.0, 0.0, None), velocity_ned_mps=(0.0, 0.0, 0.3))
    for seconds, surges in ((3.9, True), (6.0, False)):
        actuation = sent(moving(0.0), aside, seconds=seconds)
        assert (abs(actuation._mixer.achieved.force_body_n[0]) > 0.05) is surges
    assert actuation.unmoved_s > 1.0
    sinks = moving(0.3)
    for _ in range(450):  # for ten seconds after it was last needed
        actuation.allocate(sinks, aside, unhealthy=(), dt_s=DT_S)
        actuation.watch(sinks, aside, powered=True, dt_s=DT_S)
    assert abs(actuation._mixer.achieved.force_body_n[0]) < 0.05


def test_an_idle_ship_drives_nothing() -> None:
    actuation, _ = made()
    sent_out = actuation.allocate(moving(0.0), Setpoint(idle=True), unhealthy=(), dt_s=DT_S)
    assert sent_out == actuation._mixer.neutral
    assert actuation.thrust is not None


@pytest.mark.parametrize(("gives_n", "known"), [(0.0, True), (0.3, False)])
def test_the_thrust_is_known_while_what_is_broken_does_nothing(gives_n: float, known: bool) -> None:
    actuation, ship = made()
    wrong = Wrong.RUNS if gives_n else Wrong.DEAD
    actuation._effect._blame((Fault(names=("left",), wrong=wrong, thrusts_n=(gives_n,)),))
    actuation.allocate(moving(0.0), SINK, unhealthy=(), dt_s=DT_S)
    assert (actuation.thrust is not None) is known
    assert actuation.astray is not known
    assert (actuation.spared > 0.0) is known
    ship.supervisor.disarm(ship.state, reason="a new flight")
    actuation.watch(moving(0.0), SINK, powered=True, dt_s=DT_S)
    assert actuation.broken == ()
