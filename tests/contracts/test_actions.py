"""Every row of the table of actions reaches every face, or says why one does not have it.

One test a face. A row that reaches only some of them makes the tests of the others red.
"""

import inspect
import json
from typing import Any

import pytest
from typer.main import get_command

from blimp.actions import ACTIONS, Absent, Action
from blimp.forms import arguments_of
from ground_station.commands import app
from ground_station.page.actions import NAMES
from ground_station.page.openapi import openapi
from ground_station.ship import Ship

ROWS = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda row: row.name)


@ROWS
def test_an_absence_has_a_reason(action: Action) -> None:
    for face in (action.examples, action.http, action.python):
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
            assert found["x-unit"] == argument.unit


@ROWS
def test_python(action: Action) -> None:
    """A method with the form's arguments; `ground_station.plain` has the same ones."""
    if isinstance(action.python, Absent):
        return
    method = getattr(Ship, action.python or action.name)
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
