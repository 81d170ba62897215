"""The page's commands as an OpenAPI document, made from the table of actions."""

from functools import cache
from typing import Any

import msgspec

from blimp.actions import ACTIONS, Action
from blimp.web.outcome import Outcome
from ground_station.page.actions import NAMES


@cache
def openapi() -> dict[str, Any]:
    """Return the document: OpenAPI 3.1, a path for each action that the page runs."""
    actions = [ACTIONS[name] for name in NAMES if name in ACTIONS]
    forms = [Outcome, *(action.arguments for action in actions)]
    _, schemas = msgspec.json.schema_components(forms, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "What a ship can be asked to do", "version": "1"},
        "paths": {f"/api/command/{action.name}": {"post": _request(action)} for action in actions},
        "components": {"schemas": schemas},
    }


def _request(action: Action) -> dict[str, Any]:
    outcome = {"content": _json(Outcome)}
    return {
        "operationId": action.name,
        "summary": action.about,
        "x-needs": list(action.needs),
        "x-asks": action.asks,
        "parameters": [{"name": "vehicle", "in": "query", "schema": {"type": "string"}}],
        "requestBody": {"content": _json(action.arguments)},
        "responses": {
            "200": {"description": "how it ended", **outcome},
            "400": {"description": "no ship takes these arguments", **outcome},
        },
    }


def _json(form: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}}
