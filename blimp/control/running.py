"""Commands under way: how far each is, and how it ends."""

from typing import Any

import msgspec

from blimp.control.modes.manual import Order
from blimp.control.modes.mode import FlightMode
from blimp.control.pilot import Pilot
from blimp.types import Command, OutcomeState
from blimp.wires.check import WireCheck


class FlightInProgress(msgspec.Struct, kw_only=True):
    """A flight command; its mode says when it is done."""

    command: Command
    accepted_s: float
    reported_s: float
    mode: FlightMode


class OrderInProgress(msgspec.Struct, kw_only=True):
    """A motor or servo command; its time says when it is done."""

    command: Command
    accepted_s: float
    reported_s: float
    actuator: str
    order: Order


class WiresInProgress(msgspec.Struct, kw_only=True):
    """The wires are being tried; what is found ends it."""

    command: Command
    accepted_s: float
    reported_s: float
    check: WireCheck


Running = FlightInProgress | OrderInProgress | WiresInProgress


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a command by now."""

    state: OutcomeState
    fraction: float
    reason: str = ""
    result: dict[str, Any] = {}


def judge(running: Running, *, pilot: Pilot, now_s: float) -> Standing:
    """Return how `running` stands. A mode or an order that gave way has ended refused."""
    if isinstance(running, OrderInProgress):
        return _judge_order(running, pilot, now_s)
    if isinstance(running, WiresInProgress):
        return _judge_wires(running.check, pilot)
    mode = running.mode
    if mode.done:
        return Standing(state=OutcomeState.DONE, fraction=1.0, reason=mode.note, result=mode.result)
    reason = mode.gave_up if pilot.mode is mode else pilot.reason
    if reason or pilot.mode is not mode:
        return Standing(state=OutcomeState.REFUSED, fraction=mode.fraction, reason=reason)
    return Standing(state=OutcomeState.IN_PROGRESS, fraction=mode.fraction)


def _judge_order(running: OrderInProgress, pilot: Pilot, now_s: float) -> Standing:
    order = running.order
    length_s = order.until_s - order.started_s
    if now_s >= order.until_s:
        return Standing(
            state=OutcomeState.DONE,
            fraction=1.0,
            result={"value": order.value, "seconds": length_s},
        )
    fraction = min(1.0, (now_s - order.started_s) / length_s)
    in_force = pilot.manual.running(running.actuator, now_s)
    if in_force is order:
        return Standing(state=OutcomeState.IN_PROGRESS, fraction=fraction)
    reason = pilot.reason
    if in_force is not None:
        reason = f"superseded by {running.command.name} {in_force.command_id}"
    return Standing(state=OutcomeState.REFUSED, fraction=fraction, reason=reason)


def _judge_wires(check: WireCheck, pilot: Pilot) -> Standing:
    """What is wired otherwise refuses the command, with the cure: nobody reads a `done` twice."""
    finding = check.finding
    if finding is None and pilot.manual.check is check:
        return Standing(state=OutcomeState.IN_PROGRESS, fraction=check.fraction)
    if finding is None:
        return Standing(
            state=OutcomeState.REFUSED, fraction=check.fraction, reason=pilot.reason or "superseded"
        )
    result = {
        "sure": finding.sure,
        "wrong": [[str(wrong), list(names)] for wrong, names in finding.wrong],
        "mounting": list(finding.mounting),
        "doubtful": list(finding.doubtful),
    }
    right = finding.sure and not finding.wrong
    return Standing(
        state=OutcomeState.DONE if right else OutcomeState.REFUSED,
        fraction=1.0,
        reason="" if right else "; ".join(finding.said),
        result=result,
    )
