"""The keys of a terminal fly the ship: what they ask for, and what reaches the ship by a pty."""

import pytest

from blimp.clock import ManualClock
from blimp.tasks.client import VehicleClient
from ground_station.stick_command import DEMAND_S, HELD_S, Keys
from tests.ground_station.ship import FlyingShip
from tests.ground_station.terminal import Terminal
from tests.ground_station.test_cli import DEADLINE_S, Ground, ground, operator  # noqa: F401
from tests.queue.conftest import wait_until


def pushed(keys: Keys) -> dict[str, float]:
    return {name: value for name, value in keys.sticks().items() if value}


def test_a_key_counts_while_it_repeats_and_is_let_go_within_half_a_second() -> None:
    clock = ManualClock()
    keys = Keys(clock=clock)
    assert set(keys.sticks()) == {"forward_percent", "right_percent", "up_percent", "turn_percent"}
    for _ in range(20):
        keys.take("w")
        clock.advance(0.05)
        assert pushed(keys) == {"forward_percent": 50.0}
    clock.advance(HELD_S)
    assert pushed(keys) == {}
    assert HELD_S + DEMAND_S <= 0.5


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("s", {"forward_percent": -50.0}),
        ("wd", {"forward_percent": 50.0, "turn_percent": 50.0}),
        ("\x1b[A", {"up_percent": 50.0}),
        ("a\x1b[C", {"turn_percent": 50.0}),
        (",", {"right_percent": -50.0}),
        ("++w", {"forward_percent": 70.0}),
        ("w ", {}),
        ("x!\x1b[5~é", {}),
        ("\x1b[1;5D\x1b[1;2Q\x1b[1;5A", {}),  # Ctrl and an arrow, Shift and F2
    ],
)
def test_what_a_key_asks_for(typed: str, wanted: dict[str, float]) -> None:
    keys = Keys(clock=ManualClock())
    keys.take(typed)
    assert pushed(keys) == wanted
    assert not keys.has_ended


def test_escape_ends_it_and_the_begin_of_an_arrow_does_not() -> None:
    clock = ManualClock()
    keys = Keys(clock=clock)
    keys.take("\x1b")
    assert not keys.has_ended  # the rest of an arrow's sequence may be on its way
    keys.take("[A")
    clock.advance(0.2)
    assert (keys.has_ended, pushed(keys)) == (False, {"up_percent": 50.0})
    for typed in ("\x1b", "q", "Q", "\x1bx", ""):  # the last one: the terminal is gone
        other = Keys(clock=clock)
        other.take(typed)
        clock.advance(0.2)
        assert other.has_ended, typed


def send(twin: FlyingShip, *commands: tuple[str, dict[str, object]]) -> None:
    with VehicleClient(twin.broker.url, twin.vehicle) as client:
        for name, arguments in commands:
            assert client.send(name, arguments).wait(DEADLINE_S).state == "SUCCESS"


def is_level(arguments: dict[str, float]) -> bool:
    return not any(value for name, value in arguments.items() if name != "seconds")


@pytest.mark.long
def test_the_keys_of_a_terminal_push_the_ship_and_it_holds_at_the_end(twin: FlyingShip) -> None:
    pushes = twin.mailbox.commands
    send(twin, ("arm", {}), ("takeoff", {"altitude_m": 2.0}), ("mode", {"name": "ALTHOLD"}))
    with Terminal(twin, "stick") as terminal:
        terminal.read_until("Esc or Q: end")
        for typed, push in (
            ("w", ("forward_percent", 50.0)),
            ("\x1b[D", ("turn_percent", -50.0)),
        ):

            def is_pushed(typed: str = typed, push: tuple[str, float] = push) -> bool:
                terminal.type(typed)  # a key that is held repeats
                return any(push in one.arguments.items() for one in list(pushes))

            pushes.clear()
            wait_until(is_pushed, typed)
            assert pushes[-1].arguments["seconds"] == DEMAND_S
            pushes.clear()
            wait_until(lambda: pushes and is_level(pushes[-1].arguments), "it is not let go")
        terminal.read_until("forward")
        terminal.type("q")
        terminal.read_until("the ship holds")
        assert terminal.end() == 0
    assert pushes[-1].name == "hold"
    assert twin.ship.snapshot().mode == "HOLD"


@pytest.mark.long
def test_the_key_that_stops_every_motor_works_here_too(twin: FlyingShip) -> None:
    send(twin, ("arm", {}), ("takeoff", {"altitude_m": 2.0}), ("mode", {"name": "ALTHOLD"}))
    with Terminal(twin, "stick") as terminal:
        terminal.read_until("Esc or Q: end")
        terminal.type("!")
        terminal.read_until("emergency stop: SUCCESS")
        terminal.end()
    twin.ship.step(0.1)
    assert twin.ship.snapshot().killed
