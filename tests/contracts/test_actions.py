"""Every row of the table of actions reaches every face, or says why one does not have it.

One test a face. A row that reaches only some of them makes the tests of the others red.
"""

import inspect
import json
import math
from typing import Any

import pytest
from pymavlink.dialects.v20 import all as dialect
from typer.main import get_command

from blimp.actions import ACTIONS, Absent, Action, MavCommand, Need
from blimp.errors import MissionError
from blimp.forms import Argument, arguments_of
from blimp.geofence import Geofence
from ground_station import plain
from ground_station.commands import app
from ground_station.legs import AS_THEY_ARE, Leg, completed, read_leg
from ground_station.mavlink import items
from ground_station.mavlink.commands import COMMANDS
from ground_station.mavlink.modes import BY_NAME
from ground_station.page.actions import NAMES
from ground_station.page.openapi import openapi
from ground_station.ship import Ship
from tests.faults.fuzz_mavlink import Bench, twin
from tests.ground_station.mavlink.test_vehicle import HOME, acks, fly, send

ROWS = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda row: row.name)


@ROWS
def test_an_absence_has_a_reason(action: Action) -> None:
    for face in (action.examples, action.http, action.python, action.mavlink, action.leg):
        assert not isinstance(face, Absent) or len(face.why.split()) > 2


@ROWS
def test_command_line(action: Action) -> None:
    group: Any = get_command(app)
    if isinstance(action.examples, Absent):
        assert action.name not in group.commands
        return
    assert action.examples
    for example in action.examples:
        name, *words = example.split()
        assert name == action.name
        group.commands[name].make_context(name, words)


@ROWS
def test_http(action: Action) -> None:
    """The page's form is made of the same document."""
    document = json.loads(json.dumps(openapi()))
    path = f"/api/command/{action.name}"
    assert (path in document["paths"]) is (action.name in NAMES) is (action.http is None)
    if action.http is not None:
        return
    schema = document["components"]["schemas"][action.arguments.__name__]
    assert set(schema["properties"]) == set(action.arguments.__struct_fields__)
    for argument in arguments_of(action.arguments):
        found = schema["properties"][argument.name]
        assert found["description"] == argument.about
        assert (argument.name in schema.get("required", [])) is argument.is_required
        if argument.is_bounded:
            assert (found["minimum"], found["maximum"]) == (argument.low, argument.high)
            assert found.get("x-unit", "") == argument.unit


@ROWS
def test_python(action: Action) -> None:
    """A method with the form's arguments; `ground_station.plain` has the same ones."""
    if isinstance(action.python, Absent):
        return
    name = action.python or action.name
    method = getattr(Ship, name)
    assert hasattr(plain.Ship, name)
    given = dict(inspect.signature(method).parameters)
    del given["self"]
    if action.in_parts:  # it takes the whole, and makes the arguments of each part
        assert given
        return
    assert set(given) == set(action.arguments.__struct_fields__)
    for argument in arguments_of(action.arguments):
        default = given[argument.name].default
        assert (default is inspect.Parameter.empty) is argument.is_required, argument.name
        if not argument.is_required:
            assert default == argument.default, argument.name


@ROWS
def test_mavlink(action: Action) -> None:
    """A COMMAND_INT with a value for each parameter asks the ship for the action with them."""
    if isinstance(action.mavlink, Absent):
        return
    row: MavCommand = action.mavlink
    assert set(row.params.values()) <= set(action.arguments.__struct_fields__)
    params = [0.0] * 7
    for number, value in row.only.items():
        params[number - 1] = value
    wanted: dict[str, Any] = {}
    for argument in arguments_of(action.arguments):
        for number in (number for number, name in row.params.items() if name == argument.name):
            value, params[number - 1] = _value_of(argument, row, number)
            wanted[argument.name] = value
    wanted = {"name": "ALTHOLD"} if action.name == "mode" else wanted
    if action.name == "mode":  # its numbers are those of a table of modes
        params[:3] = 1.0, BY_NAME["ALTHOLD"].main, BY_NAME["ALTHOLD"].sub

    async def flight(bench: Bench) -> None:
        await send(bench, command_int(row.number, params))
        assert acks(bench, row.number)[-1] == 0, bench.texts
        if action.is_emergency:
            assert bench.ship.stops == 1
        else:
            asked = dict(bench.ship.asked)  # before it a fence, after it a landing
            assert asked[action.name] == pytest.approx(wanted, abs=0.02)

    assert COMMANDS[row.number].acts == (action.needs_control or action.is_emergency)
    fly(twin(), flight)


def _value_of(argument: Argument, row: MavCommand, number: int) -> tuple[Any, float]:
    """Return a value of an argument, and the parameter that says it."""
    if argument.kind is bool:
        return True, row.true
    if number in (5, 6):  # the pad's latitude and longitude, times 1e7
        return 0.0, HOME[number - 5]
    value = 9.0 if argument.kind is int else max(argument.low, min(argument.high, 2.0))
    return value, math.radians(value) if number in row.radians else value


def command_int(number: int, params: list[float]) -> Any:
    *four, x, y, z = params
    return dialect.MAVLink_command_int_message(1, 1, 6, number, 0, 0, *four, int(x), int(y), z)


def test_mavlink_has_no_action_of_its_own() -> None:
    """What moves the ship by a number is in the table, but for the plan's own and the modes'."""
    assert not COMMANDS[203].acts  # the older form of 2000
    known = {row.mavlink.number for row in ACTIONS.values() if isinstance(row.mavlink, MavCommand)}
    others = {number for number, row in COMMANDS.items() if row.acts} - known
    assert others == {193, 224, 262, 300}  # pause, mission item, standard mode, mission start


@ROWS
def test_leg(action: Action) -> None:
    """A mission has it with the form's arguments and sends them, after the legs that it needs."""
    known = arguments_of(action.arguments)
    if isinstance(action.leg, Absent):
        with pytest.raises(MissionError, match=f"{action.name}' is no command"):
            read_leg({"do": action.name}, "leg 1")
        return
    assert set(action.needs) <= {Need.ARMED, Need.UP, Need.POSITION, Need.CAMERA}
    without = action.leg.without
    values = {one.name: _plain(one) for one in known if one.name not in without}
    if action.name == "payload":
        del values["name"], values["deg"]  # of a name and a channel, an angle and a pulse, one each
    leg = read_leg({"do": action.name, **values}, "leg 1")
    assert (leg.do, leg.arguments()) == (action.name, {} if action.name == "hold" else values)
    with pytest.raises(MissionError, match="fast"):
        read_leg({"do": action.name, **values, "fast": True}, "leg 1")
    arm, takeoff = {"do": "arm"}, {"do": "takeoff", "altitude_m": 2.0}
    before = {"arm": [], "takeoff": [arm], "disarm": [arm]}.get(action.name, [arm, takeoff])
    legs = [*before, {"do": action.name, **values}]
    assert _completed(legs)[-1] == leg
    if action.name in AS_THEY_ARE and isinstance(action.mavlink, MavCommand):
        assert action.mavlink.number in items.COMMANDS
    if action.needs:
        with pytest.raises(MissionError, match="the ship "):
            _completed(legs[-1:])


def _completed(legs: list[dict[str, Any]]) -> tuple[Leg, ...]:
    return completed(legs, Geofence(), [str(one["do"]) for one in legs], where="m")


def _plain(argument: Argument) -> Any:
    if argument.kind is str:
        return "hook"
    return 9 if argument.kind is int else max(argument.low, min(argument.high, 2.0))
