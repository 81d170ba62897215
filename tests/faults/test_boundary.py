"""A slice of the boundaries, one of each kind of command; all of them are `make faults`."""

import pytest

from tests.faults.boundary import campaign, one_of_each_kind, points
from tests.faults.run import open_runs
from tests.faults.shot import CLIENT_TARGETS, WORKER_TARGETS, Point, Target

pytestmark = pytest.mark.long

SERVER_EVERY = 3  # of the boundaries; each costs a start of the server
# What a worker must be killed at, whatever else it asks of its server.
WORKERS = {"take", "complete", "renew", "release", "dead_letter", "XREADGROUP", "look"}
CLIENTS = {"put", "put_many", "broadcast"}


def slice_of(every: list[Point], targets: tuple[Target, ...]) -> list[Point]:
    """Return one boundary of each kind, most of them kills of the process under test."""
    process, server = (one_of_each_kind([p for p in every if p.target == t]) for t in targets)
    return [
        one if number % SERVER_EVERY else other
        for number, (one, other) in enumerate(zip(process, server, strict=True))
    ]


def test_a_worker_may_be_killed_at_each_kind_of_command() -> None:
    with open_runs() as runs:
        commands = runs.number()
        assert {command.kind for command in commands} >= WORKERS
        chosen = slice_of(points(commands, targets=WORKER_TARGETS), WORKER_TARGETS)
        report = campaign(runs, chosen, crowd=False)
    assert report.ok, report


def test_a_publishing_client_may_be_killed_at_each_kind_of_command() -> None:
    with open_runs() as runs:
        commands = runs.number(clients=True)
        assert {command.kind for command in commands} >= CLIENTS
        chosen = slice_of(points(commands, targets=CLIENT_TARGETS), CLIENT_TARGETS)
        report = campaign(runs, chosen, crowd=False)
    assert report.ok, report


def test_a_campaign_that_kills_nothing_at_a_kind_of_command_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check of the check: with the kills at `take` disabled all the rest holds."""
    monkeypatch.setattr("tests.faults.boundary.INSISTENT_TRIES", 2)
    with open_runs(disarmed={"take"}) as runs:
        commands = [one for one in runs.number() if str(one) in ("take#2", "complete#2")]
        report = campaign(runs, points(commands, targets=("worker",)), crowd=False)
    assert report.unkilled == [
        "no worker was killed after any take",
        "no worker was killed before any take",
    ]
    assert not report.failed
    assert report.held == 2
    assert not report.ok
