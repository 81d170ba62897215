"""`ground estop` without a name: every ship of this machine and of the broker, none waits."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis

from blimp.errors import OutcomeUnknown
from blimp.link.registry import Registration
from blimp.queue.redis.urls import redis_url
from ground_station import cli
from ground_station.plain import Ship
from tests.broker import EmbeddedBroker
from tests.forked import Ended, forked
from tests.ground_station.ship import FlyingShip
from tests.needs import needs_root
from tests.sim.running import RunningStack
from tests.stopwatch import Stopwatch
from tests.tasks.ship import FlightSide

NAMES = ("twin-1", "twin-2", "twin-3")
OTHER_USER = needs_root("becomes another user")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ships of this machine are registered; nothing else of the environment."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / f"blimp-{os.getuid()}"
    path.mkdir(mode=0o700)
    return path


def register(registry: Path, vehicle: str, broker: str, *, pid: int = 0) -> None:
    entry = Registration(vehicle=vehicle, broker=broker, pid=pid or os.getpid(), runtime_dir="/x")
    (registry / f"{vehicle}.json").write_bytes(msgspec.json.encode(entry))


def estop(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit status, the object that was printed, and the messages."""
    status = cli.run(["--json", *options, "estop"])
    out, err = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    return status, found, err


def states(found: dict[str, Any]) -> dict[str, str]:
    return {name: one["state"] for name, one in found["ships"].items()}


def test_the_ships_of_this_machine_and_of_the_broker_are_stopped_beside_those_that_are_gone(
    registry: Path, twin: FlyingShip, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gone = f"redis+socket://{tmp_path}/none.sock?virtual_host=0"
    with EmbeddedBroker(directory=tmp_path / "b") as own:
        here = FlyingShip(broker=own, vehicle="here", ship=twin.ship)
        with here.worker():
            register(registry, "here", own.url)
            assert estop(capsys)[0] == 0
            assert [one.state for one in Ship.estop_all().values()] == ["SUCCESS"]
            register(registry, "ended", own.url, pid=2**22 + 1)
            register(registry, "cut-off", gone)
            (registry / "torn.json").write_text("{")
            with pytest.raises(OutcomeUnknown, match="not confirmed: cut-off: no broker"):
                Ship.estop_all()
            status, found, err = estop(capsys, "--broker", twin.broker.url, "--timeout", "2")
            status_of_one, one, _ = estop(capsys, "--broker", own.url, "--vehicle", "here")
    assert (status_of_one, one["state"], "ships" in one) == (0, "SUCCESS", False)
    ended = states(found)
    assert ended.pop(twin.vehicle) == "SUCCESS"
    assert ended.pop(f"here on {own.url}") == "SUCCESS"
    assert ended.pop(f"cut-off on {gone}") == "FAILURE"
    assert "ended" not in str(ended)
    assert (status, found["state"]) == (4, "FAILURE")
    assert f"cut-off on {gone}: no broker" in err.partition("not confirmed: ")[2]


def test_a_broker_that_is_gone_delays_no_stop_and_leaves_it_unconfirmed(
    registry: Path, twin: FlyingShip, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gone = f"redis+socket://{tmp_path}/none.sock?virtual_host=0"
    assert cli.run(["--broker", gone, "estop"]) == 3, "no ship is known"
    assert "none.sock" in capsys.readouterr().err
    register(registry, twin.vehicle, twin.broker.url)
    status, found, err = estop(capsys, "--broker", gone)
    assert status == 4
    assert states(found) == {f"{twin.vehicle} on {twin.broker.url}": "SUCCESS"}
    assert "none.sock" in found["reason"]
    assert "none.sock" in err


def test_without_any_ship_it_says_what_to_do(
    registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found, _ = estop(capsys)
    assert (status, found["state"]) == (3, "FAILURE")
    assert "blimp up --sim" in found["reason"]


def test_a_dry_run_names_every_ship_and_stops_none(
    registry: Path, twin: FlyingShip, capsys: pytest.CaptureFixture[str]
) -> None:
    register(registry, "other", twin.broker.url)
    twin.publish()
    status, found, err = estop(capsys, "--dry-run")
    assert status == 0
    assert {"other", twin.vehicle} <= set(found["result"]["vehicles"])
    assert "nothing is sent" in err
    snapshot = twin.mailbox.snapshot()
    assert snapshot is not None
    assert not snapshot.killed


@pytest.mark.parametrize(
    ("broker", "words", "user"),
    [
        ("rediss://none.invalid/0", ("estop",), None),
        pytest.param("rediss://none.invalid/0", ("estop",), "nobody", marks=OTHER_USER),
        pytest.param(
            "rediss://none.invalid/0", ("--vehicle", "twin", "estop"), "nobody", marks=OTHER_USER
        ),
        pytest.param("redis://127.0.0.1:1/0", ("estop",), "nobody", marks=OTHER_USER),
    ],
)
def test_on_board_a_stop_needs_neither_the_broker_nor_the_key(
    broker: str, words: tuple[str, ...], user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is gone, another machine's or this one's, and only root may read the key."""
    with ExitStack() as own:
        path = Path(own.enter_context(tempfile.TemporaryDirectory(prefix="blimp-test-")))
        configuration, key = path / "blimp.toml", path / "signing.key"
        configuration.write_text(
            f'vehicle = "twin"\nbroker = "{broker}"\nsigning_key_file = "{key}"\n'
        )
        key.write_text("0" * 43)
        key.chmod(0o600)
        (path / "vehicle").write_text("twin")
        flight = own.enter_context(FlightSide(path / "flight.sock"))
        for entry, mode in ((path, 0o755), (configuration, 0o644), (path / "vehicle", 0o644)):
            entry.chmod(mode)
        (path / "estop.sock").chmod(0o666)  # as for a member of the ship's group
        monkeypatch.setattr("ground_station.discover.CONFIG_PATH", configuration)
        monkeypatch.setattr("ground_station.discover.ON_BOARD_DIR", path)
        home = {"XDG_RUNTIME_DIR": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"}

        def ground(*words: str) -> Ended:
            return forked("ground_station", "--json", *words, environment=home, user=user)

        ended = ground(*words)
        found = json.loads(ended.stdout)
        one = found if "--vehicle" in words else found["ships"]["twin"]
        assert (one["state"], set(one["result"]["roads_ms"])) == ("SUCCESS", {"socket"}), ended
        # Nobody knows which other ships the broker has.
        assert ended.returncode == (0 if "--vehicle" in words else 4)
        assert flight.named("estop")

        ended = ground("arm")
        secret = f"this ship signs its messages, and only root may read its key {key}: use sudo"
        assert (ended.returncode, secret in ended.stderr) == ((7, True) if user else (3, False))
        assert not flight.named("arm")


def test_a_simulated_ship_of_this_user_does_not_hide_the_one_that_the_machine_is(
    registry: Path,
    twin: FlyingShip,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    register(registry, twin.vehicle, twin.broker.url)
    with tempfile.TemporaryDirectory(prefix="blimp-test-") as name:
        path = Path(name)
        (path / "blimp.toml").write_text(f'vehicle = "real"\nbroker = "{twin.broker.url}"\n')
        (path / "vehicle").write_text("real")
        monkeypatch.setattr("ground_station.discover.CONFIG_PATH", path / "blimp.toml")
        monkeypatch.setattr("ground_station.discover.ON_BOARD_DIR", path)
        with FlightSide(path / "flight.sock"):
            ended = states(estop(capsys, "--timeout", "2")[1])  # beside others that were heard
    assert (ended["real"], ended[twin.vehicle]) == ("SUCCESS", "SUCCESS")


@pytest.fixture
def three() -> Iterator[RunningStack]:
    """Three ships of one broker, all armed."""
    with RunningStack("--ships", "3") as stack:
        for name in NAMES:
            stack.wait_for_event(lambda e, n=name: e["event"] == "ready" and e["vehicle"] == n)  # type: ignore[misc]
            assert stack.ground("--vehicle", name, "arm").status == 0
        yield stack


def killed(stack: RunningStack) -> list[bool]:
    """Return what a bare `ground status` says of each ship."""
    lines = map(json.loads, stack.ground("status").stdout.splitlines())
    found = {one["vehicle"]: one["killed"] for one in lines}
    return [found[name] for name in NAMES]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_one_stop_stops_three_armed_ships_and_waits_for_no_silent_one(three: RunningStack) -> None:
    answer = three.ground("--vehicle", "twin-2", "estop")
    assert answer.status == 0
    three.wait_until(lambda: killed(three) == [False, True, False], within_s=10.0)
    assert three.ground("--vehicle", "twin-2", "arm").status == 0
    answer = three.ground("estop")
    assert (answer.status, states(answer.json)) == (0, dict.fromkeys(NAMES, "SUCCESS"))
    three.wait_until(lambda: killed(three) == [True] * 3, within_s=10.0)
    for name in NAMES:
        assert three.ground("--vehicle", name, "arm").status == 0

    # A ship that was heard, and says nothing any more.
    with Redis.from_url(redis_url(three.ready["broker"])) as broker:
        broker.xadd("blimp:telemetry:silent", {"age_s": "0"})
    watch = Stopwatch()
    answer = three.ground("--timeout", "3", "estop")
    assert watch.undisturbed_s() < 4.0
    assert (answer.status, "not confirmed: silent: no word" in answer.stderr) == (4, True), (
        answer.stderr
    )
    assert states(answer.json) == {**dict.fromkeys(NAMES, "SUCCESS"), "silent": "TIMEOUT"}
    assert all(answer.json["ships"][name]["latency_ms"] < 500.0 for name in NAMES)
