"""The command line against a ship behind the real queue: what it prints, and its exit status."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from blimp.tasks.client import VehicleClient
from ground_station import cli
from tests.forked import ran
from tests.ground_station.ship import FlyingShip
from tests.ground_station.terminal import Terminal
from tests.repeating import repeating
from tests.stopwatch import Stopwatch

REPLY_KEYS = ["id", "task", "state", "result", "reason", "latency_ms"]
STATUS_KEYS = [
    "vehicle",
    "mode",
    "armed",
    "killed",
    "failsafe",
    "age_s",
    "position_ned_m",
    "velocity_ned_mps",
    "altitude_m",
    "attitude_rad",
    "battery_v",
    "actuators",
    "sensors",
    "loop",
]
DEADLINE_S = 60.0


class Ground:
    """`ground` in this process: its exit status, its output and its messages."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.options: list[str] = []
        self.out = ""
        self.err = ""

    def __call__(self, *words: str) -> int:
        status = cli.run([*self.options, *words])
        self.out, err = self._capsys.readouterr()
        self.err = re.sub(r"timestamp=.*\n", "", err)  # the worker of this process logs there
        return status

    def json(self, *words: str) -> tuple[int, dict[str, Any]]:
        status = self("--json", *words)
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        found: dict[str, Any] = json.loads(lines[0])
        return status, found


@pytest.fixture
def ground(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ground:
    """`ground` with an empty environment: nothing is found by itself."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    return Ground(capsys)


@pytest.fixture
def operator(ground: Ground, twin: FlyingShip) -> Ground:
    """`ground` that knows of a ship that answers."""
    ground.options = ["--broker", twin.broker.url, "--vehicle", twin.vehicle]
    return ground


@pytest.fixture
def lonely(ground: Ground, parked: FlyingShip) -> Ground:
    """`ground` that knows of a broker on which nobody works."""
    ground.options = ["--broker", parked.broker.url, "--vehicle", parked.vehicle]
    return ground


# --- with a ship ----------------------------------------------------------------------------


def test_a_flight_by_hand(operator: Ground, twin: FlyingShip, tmp_path: Path) -> None:
    dash = tmp_path / "dash.csv"  # two chunks
    rows = [f"{0.5 * k},{-1.5 + 0.05 * k},-0.5,-2.2,-1.571" for k in range(10)]
    dash.write_text("\n".join(["time,x_ref,y_ref,z_ref,psi_ref", *rows]))
    for words in (
        ["ping"],
        ["arm"],
        ["takeoff", "2"],
        ["goto", "-1", "-.5", "2", "--yaw-deg", "-90"],
        ["velocity", "-0.2", "0", "0.1", "--seconds", "3"],
        ["trajectory", str(dash)],
        ["hold"],
        ["mode", "loiter"],
        ["mode", "althold"],
        ["stick", "--forward", "-20", "--turn", "10", "--seconds", "1"],
        ["sensor", "baro"],
        ["return"],
        ["land"],
        ["disarm"],
    ):
        status, reply = operator.json(*words)
        assert list(reply) == REPLY_KEYS
        assert (status, reply["state"], reply["reason"]) == (0, "SUCCESS", ""), reply
        assert reply["task"] == f"blimp.{words[0]}"
        assert reply["latency_ms"] > 0.0
    assert twin.ship.truth.on_ground


def test_a_refusal_is_five_with_the_ships_reason(operator: Ground) -> None:
    status, reply = operator.json("takeoff", "2")
    assert (status, reply["state"]) == (5, "REFUSED")
    assert "not armed" in reply["reason"]
    assert operator("takeoff", "2") == 5
    assert "→ refused (" in operator.err
    assert "not armed" in operator.err
    assert operator.out == ""


def test_an_emergency_stop_never_asks_and_is_latched(operator: Ground, twin: FlyingShip) -> None:
    operator("arm")
    status, reply = operator.json("estop")
    assert (status, reply["task"], reply["state"]) == (0, "blimp.estop", "SUCCESS")
    snapshot = twin.mailbox.snapshot()
    assert snapshot is not None
    assert snapshot.killed
    assert operator.json("takeoff", "2")[1]["reason"].startswith("killed")


def test_a_result_can_be_asked_for_later(operator: Ground) -> None:
    assert operator("--no-wait", "ping") == 0
    id = operator.out.strip()
    status, reply = operator.json("ping", "--no-wait")
    assert (status, reply["state"]) == (0, "PENDING")
    deadline_s = time.monotonic() + DEADLINE_S
    while (found := operator.json("result", id))[0] != 0:
        assert time.monotonic() < deadline_s, found
    assert found[1]["id"] == id
    assert found[1]["task"] == "blimp.ping"
    status, reply = operator.json("result", "00000000-0000-0000-0000-000000000000")
    assert (status, reply["state"]) == (6, "TIMEOUT")
    assert reply["reason"].startswith("no command of this id is known")


def test_status_has_exactly_its_keys(operator: Ground, twin: FlyingShip) -> None:
    twin.publish(age_s=2.0)
    status, found = operator.json("status")
    assert status == 0
    assert list(found) == STATUS_KEYS
    assert found["vehicle"] == "twin"
    assert 2.0 <= found["age_s"] < 5.0
    assert list(found["attitude_rad"]) == ["roll", "pitch", "yaw"]
    assert list(found["loop"]) == ["rate_hz", "overruns"]
    assert len(found["position_ned_m"]) == len(found["velocity_ned_mps"]) == 3
    assert set(found["actuators"]) == {"left", "right", "tail", "tilt", "elevator", "rudder"}
    for sensor in found["sensors"].values():
        assert list(sensor) == ["value", "unit", "age_s", "healthy"]
    assert found["sensors"]["baro"]["age_s"] >= 2.0
    assert operator("status") == 0
    assert "SIMULATED" in operator.out
    assert "\x1b" not in operator.out


def test_an_old_status_is_shown_and_is_no_link(lonely: Ground, parked: FlyingShip) -> None:
    parked.publish(age_s=60.0)
    status, found = lonely.json("status")
    assert (status, list(found)) == (3, STATUS_KEYS)
    assert "no link" in lonely.err


# --- without a ship -------------------------------------------------------------------------


def test_nobody_answering_is_a_timeout_of_unknown_outcome(lonely: Ground) -> None:
    status, reply = lonely.json("--timeout", "0.2", "hold")
    assert (status, reply["state"]) == (6, "TIMEOUT")
    assert "outcome unknown" in reply["reason"]
    status, reply = lonely.json("estop", "--timeout", "0.3")
    assert (status, reply["state"]) == (6, "TIMEOUT")


def test_what_was_not_begun_in_time_is_never_begun(lonely: Ground, parked: FlyingShip) -> None:
    """The wait bounds the age at which a command may begin: nothing acts after its sender left."""
    status, reply = lonely.json("--timeout", "0.2", "arm")
    assert status == 6
    deadline_s = time.monotonic() + 0.25
    while time.monotonic() < deadline_s:
        pass  # let it age past its time to live before anybody works
    with parked.worker():
        with VehicleClient(broker=parked.broker.url, vehicle=parked.vehicle) as client:
            assert client.ping(timeout_s=DEADLINE_S).state == "SUCCESS"
        while lonely.json("result", reply["id"])[1]["state"] == "TIMEOUT":
            pass
        assert lonely.json("result", reply["id"])[1]["state"] == "EXPIRED"
    snapshot = parked.mailbox.snapshot()
    assert snapshot is not None
    assert not snapshot.armed


@pytest.mark.parametrize(
    "words",
    [
        ["hold"],
        ["hold", "--no-wait"],
        ["control", "take"],
        ["status"],
        ["watch"],
        ["mission", "run", "hop", "--yes"],
    ],
)
def test_a_ship_that_is_not_there_is_answered_at_once_with_those_that_are(
    operator: Ground, twin: FlyingShip, words: list[str]
) -> None:
    twin.publish()
    operator.options[-1] = "nobody"
    watch = Stopwatch()
    assert operator(*words) == 3
    assert watch.undisturbed_s() < 2.0
    assert re.search(rf"no ship 'nobody' on .*; there are: .*\b{twin.vehicle}\b", operator.err)


def test_an_emergency_stop_of_a_ship_that_is_not_known_is_tried_to_the_end(
    lonely: Ground, parked: FlyingShip
) -> None:
    parked.publish()
    lonely.options[-1] = "nobody"
    assert lonely("--timeout", "1.2", "estop") == 6
    assert f"no ship 'nobody' on {parked.broker.url}" in lonely.err
    assert "estop: timeout: no word" in lonely.err


def test_a_ship_that_sends_no_telemetry_is_there_if_it_answers(
    operator: Ground, parked: FlyingShip
) -> None:
    other = FlyingShip(broker=parked.broker, vehicle="other", ship=parked.ship)
    other.publish()
    assert operator("control", "take") == 0


def test_no_broker_is_three_for_every_command(ground: Ground, tmp_path: Path) -> None:
    ground.options = [
        "--broker",
        f"redis+socket://{tmp_path}/none.sock?virtual_host=0",
        "--vehicle",
        "twin",
    ]
    for words in (["ping"], ["estop"], ["goto", "1", "2", "3"], ["result", "x"]):
        status, reply = ground.json(*words)
        assert (status, list(reply), reply["state"]) == (3, REPLY_KEYS, "FAILURE"), words
        assert "none.sock" in reply["reason"]
        assert reply["task"] == f"blimp.{words[0]}"
    for command in ("status", "watch"):
        assert ground("--json", command) == 3
        assert ground.out == ""
        assert "none.sock" in ground.err


def test_no_ship_on_this_machine_is_three(ground: Ground) -> None:
    assert ground("ping") == 3
    assert "blimp up --sim" in ground.err


def test_a_wrong_password_is_seven(ground: Ground, parked: FlyingShip) -> None:
    path = parked.broker.url.removeprefix("redis+socket://").partition("?")[0]
    ground.options = ["--broker", f"unix://u:secret@{path}?db=0", "--vehicle", parked.vehicle]
    assert ground("status") == 7
    assert "secret" not in ground.err + ground.out


# --- wrong usage ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["goto", "nan", "0", "3"], ["NORTH_M", "not nan"]),
        (["goto", "0", "0", "three"], ["ALT_M must be 0.5 to 10000 m, not three"]),
        (["goto", "10001", "0", "3"], ["NORTH_M must be -10000 to 10000 m, not 10001"]),
        (["goto", "0", "0"], ["ALT_M"]),
        (["goto", "0", "0", "3", "4"], ["extra"]),
        (["goto", "0", "0", "3", "--yaw", "4"], ["--yaw", "--yaw-deg"]),
        (["velocity", "1", "0", "0"], ["--seconds"]),
        (["motor", "left", "101", "--seconds", "1"], ["PERCENT", "-100 to 100"]),
        (["mode", "FAST"], ["NAME", "'FAST'", "LOITER"]),
        (["--timeout", "0", "ping"], ["--timeout", "more than 0"]),
        (["ping", "--vehicle", "A B"], ["--vehicle", "'A B'"]),
        (["ping", "--broker", "amqp://x"], ["amqp"]),
        (["fly"], ["fly"]),
        (["--quick", "ping"], ["--quick"]),
        (["mission", "run", "none.toml"], ["none.toml", "square"]),
        (["mission", "check", "/"], ["no mission in /: files end in .toml"]),
        (["--no-wait", "mission", "run", "hop"], ["--no-wait"]),
    ],
)
def test_wrong_usage_is_two_and_names_what_where_and_the_limit(
    ground: Ground, words: list[str], got: list[str]
) -> None:
    assert ground(*words) == 2
    assert ground.out == ""
    for word in got:
        assert word in ground.err
    status, reply = ground.json(*words)
    assert (status, list(reply), reply["state"], reply["id"]) == (2, REPLY_KEYS, "FAILURE", None)


# --- asking ---------------------------------------------------------------------------------


def test_a_far_mission_needs_yes_from_a_program(operator: Ground, tmp_path: Path) -> None:
    path = tmp_path / "far.toml"
    path.write_text(
        'name = "far"\n[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 100\n'
    )
    status, reply = operator.json("mission", "run", str(path))
    assert (status, reply["state"]) == (4, "FAILURE")
    assert "--yes" in reply["reason"]
    assert operator.json("arm", "--force")[0] == 4
    assert operator.json("arm", "--force", "--yes")[0] == 5  # not on the bench
    assert operator.json("mission", "run", str(path), "--yes")[0] == 5  # the ship's own limit
    assert operator("mission", "check", str(path)) == 0
    assert "as high as 100 m" in operator.out


def test_a_dry_run_sends_nothing(operator: Ground, twin: FlyingShip) -> None:
    status, reply = operator.json("--dry-run", "goto", "-3", "4", "5")
    assert (status, reply["id"]) == (0, None)
    assert reply["result"] == {
        "dry_run": True,
        "vehicle": twin.vehicle,
        "arguments": {"north_m": -3.0, "east_m": 4.0, "altitude_m": 5.0},
    }
    for words in (["arm"], ["estop"], ["mission", "run", "square"]):
        assert operator("--dry-run", *words) == 0
        assert "nothing is sent" in operator.err
    snapshot = twin.mailbox.snapshot()
    assert snapshot is not None
    assert not snapshot.armed
    assert not snapshot.killed


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 4), ("\x04", 4)])
def test_a_person_is_asked_before_arming(twin: FlyingShip, answer: str, status: int) -> None:
    with Terminal(twin, "arm") as terminal:
        terminal.read_until("[y/N]")
        terminal.type(answer)
        assert terminal.end() == status
    snapshot = twin.mailbox.snapshot()
    assert snapshot is not None
    assert snapshot.armed is (status == 0)


def test_watch_elsewhere_prints_every_snapshot_as_json(operator: Ground, twin: FlyingShip) -> None:
    twin.publish()
    with repeating(twin.publish, period_s=0.02):
        for seconds in ("0.3", "3", "20"):  # on a busy machine few are published
            assert operator("--json", "--timeout", seconds, "watch") == 0
            lines = [json.loads(line) for line in operator.out.splitlines()]
            if len(lines) >= max(3.0, 2.0 * float(seconds)):  # more than a line a second
                break
        assert len(lines) >= max(3.0, 2.0 * float(seconds))
        assert all(list(line) == STATUS_KEYS for line in lines)
        assert operator("--timeout", "0.3", "watch") == 0
        assert operator.out.count("\n") == 1  # a line a second
        assert "twin" in operator.out


def test_a_ping_on_a_broker_without_ships_is_no_link(ground: Ground, mortal: FlyingShip) -> None:
    address = ["--broker", mortal.broker.url, "--vehicle", "nope"]
    assert ground(*address, "--timeout", "5", "ping") == 3
    assert "no ship has sent telemetry on " in ground.err


def test_watch_of_a_ship_that_never_speaks_is_three(lonely: Ground) -> None:
    assert lonely("--timeout", "0.1", "watch") == 3


# --- the program itself ---------------------------------------------------------------------


def test_what_is_loaded_for_help_is_light() -> None:
    """rich, kombu and redis come with the first command that needs them."""
    code = (
        "import sys; from ground_station.cli import run; run(['--help']);"
        "heavy = {'rich', 'kombu', 'redis', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    found = ran([sys.executable, "-c", code])
    assert found.returncode == 0, found.stderr


def test_a_reader_that_goes_away_is_no_traceback(parked: FlyingShip) -> None:
    parked.publish()
    command = [sys.executable, "-m", "ground_station", "--json", "--timeout", "5"]
    command += ["--broker", parked.broker.url, "--vehicle", parked.vehicle, "watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith('{"vehicle"')
        process.stdout.close()
        parked.publish()
        parked.publish()
        deadline_s = time.monotonic() + DEADLINE_S
        while process.poll() is None:
            assert time.monotonic() < deadline_s
            parked.publish()
        assert "Traceback" not in process.stderr.read()


def test_ctrl_c_while_waiting_says_that_the_outcome_is_unknown(parked: FlyingShip) -> None:
    command = [sys.executable, "-m", "ground_station"]
    command += ["--broker", parked.broker.url, "--vehicle", parked.vehicle, "land"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = ""
        while not said.endswith("queued"):
            letter = process.stderr.read(1)
            assert letter, said
            said += letter
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 6
    assert "Traceback" not in err
    assert "stopped waiting" in err
    assert "ground result " in err
    assert out == ""
