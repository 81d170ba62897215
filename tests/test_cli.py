"""Bad options, directories and brokers of `blimp`: nothing starts, and one line says why."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import Typer
from typer.main import get_command

from blimp import airframe
from blimp.cli import app as blimp_app
from ground_station.arguments import pilot_name
from ground_station.commands import app as ground_app
from tests.forked import blimp, forked, ran


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["up", "--sim", "--airframe", "zeppelin"],
            "no airframe 'zeppelin': known are ",
        ),
        (["up", "--sim", "--vehicle", "My Ship"], "--vehicle: 'My Ship' cannot name a ship"),
        (["up", "--sim", "--runtime-dir", "/tmp/" + "x" * 120], "limit is 107"),
        (
            ["up", "--sim", "--wind", "nan"],
            "Error: --wind must be 0 to 20 m/s, not nan",
        ),
        (["fly", "--sim", "--rate", "nan"], "Error: --rate must be 20 to 400 Hz, not nan"),
        (["up"], "--sim"),
        (["up", "--sim", "--wind", "3"], "--wind must be 0 to 0.8 m/s for twin"),
        (["demo", "--ships", "2", "--wind", "3"], "--wind must be 0 to 0.8 m/s for twin"),
        (["demo", "--scenes", "stop-brokr"], "did you mean 'stop-broker'?"),
        (["demo", "--ships", "2", "--scenes", "kill-worker"], "several ships fly without scenes"),
        (["doctor", "--sim"], "no simulated ship runs"),
        (["bench", "mine.toml"], "bench: needs a person at a terminal"),
        (["fly", "--runtime-dir", "/nonexistent/blimp"], "/nonexistent/blimp/flight.sock"),
        (["worker", "--vehicle", "twin"], "no broker: give --broker URL, or set BLIMP_BROKER_URL"),
        (["safe-state", "--sim", "--runtime-dir", "/nonexistent"], "not known to be safe"),
    ],
)
def test_bad_options_are_named_in_one_breath(arguments: list[str], words: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BLIMP_")}
    environment["XDG_RUNTIME_DIR"] = "/nonexistent"  # no stack of this user is found
    status, stdout, stderr = forked("blimp", *arguments, environment=environment)
    assert status in (1, 2)
    assert stdout == ""
    assert words in stderr
    assert "Traceback" not in stderr


def failing(*words: str, **environment: str) -> str:
    """Run `blimp`, which must fail at once; return the one line it says."""
    ended = blimp(*words, environment=os.environ | environment)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("program", ["blimp", "ground_station"])
def test_a_ctrl_c_while_it_still_imports_is_quiet(program: str, tmp_path: Path) -> None:
    slow = "import signal\nprint('importing', flush=True)\nsignal.pause()\n"
    (tmp_path / "typer.py").write_text(slow)
    with subprocess.Popen(
        [sys.executable, "-m", program, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "importing\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60.0)
    assert (child.returncode, said) == (130, "")


@pytest.mark.parametrize("command", [("up", "--sim"), ("sim",)])
def test_a_directory_that_cannot_be_made_is_named(command: tuple[str, ...]) -> None:
    said = failing(*command, "--runtime-dir", "/proc/none")
    assert said.startswith("blimp: directory /proc/none cannot be made: ")


def test_a_broker_that_cannot_be_read_starts_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="blimp-") as directory:  # short: it is for sockets
        url = "redis://me:secret@h:x"
        said = failing("up", "--sim", BLIMP_BROKER_URL=url, XDG_RUNTIME_DIR=directory)
        assert "broker URL 'redis://me:***@h:x': Port could not be cast" in said
        assert "secret" not in said
        assert list(Path(directory).iterdir()) == []


def test_a_doctor_without_a_pi_says_what_is_missing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "blimp", "doctor", "--json", "--config", str(tmp_path / "none"),
         "--runtime-dir", str(tmp_path / "run")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (1, "")
    report = json.loads(ended.stdout)
    assert list(report) == ["ok", "findings"]
    assert report["ok"] is False
    states = {finding["check"]: finding["state"] for finding in report["findings"]}
    assert (states["configuration"], states["clashes"]) == ("error", "ok")
    assert all(list(one) == ["check", "state", "found", "cure"] for one in report["findings"])


@pytest.mark.parametrize("program", [blimp_app, ground_app])
def test_every_number_of_a_command_has_limits_that_nan_does_not_pass(program: Typer) -> None:
    numbers = 0
    for command, option in _options(get_command(program)):
        kind = option.type
        if type(kind).__name__ == "FuncParamType":
            if kind.func is pilot_name or kind.name == "name":  # a pilot's, or a mode's
                continue
            with pytest.raises(typer.BadParameter, match=r"must be .*, not nan"):
                kind.convert("nan", option, None)
        elif "Int" in type(kind).__name__:
            assert kind.min is not None, f"{command} {option.opts}"
        else:
            assert "Float" not in type(kind).__name__, f"{command} {option.opts}: nan passes"
            continue
        numbers += 1
    assert numbers > 12


def _options(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for part, one in getattr(command, "commands", {}).items():
        yield from _options(one, f"{name} {part}".lstrip())
    yield from ((name, option) for option in command.params)


def test_a_flight_process_without_buses_names_each_device_once() -> None:
    with tempfile.TemporaryDirectory(prefix="blimp-") as directory:  # short: it is for sockets
        with subprocess.Popen(
            [sys.executable, "-m", "blimp", "fly", "--runtime-dir", directory],
            stderr=subprocess.PIPE, text=True,
        ) as flight:  # fmt: skip
            limit = threading.Timer(60.0, flight.kill)
            limit.start()
            assert flight.stderr is not None
            lines = [flight.stderr.readline() for _ in range(10)]
            flight.terminate()
            rest = flight.stderr.read()
            limit.cancel()
        assert flight.returncode == 0
    names = [line.split(": ")[1] for line in lines]
    assert sorted(names) == sorted(f"device {row.name}" for row in airframe.load("twin").device)
    assert any("i2c-1: [Errno 2] No such file or directory" in line for line in lines)
    assert rest == ""


@pytest.mark.parametrize(
    ("program", "variable", "line", "names"),
    [
        ("blimp", "_BLIMP_COMPLETE", "blimp up --airframe tw", ["twin"]),
        ("blimp", "_BLIMP_COMPLETE", "blimp demo --mission sq", ["square"]),
        (
            "blimp",
            "_BLIMP_COMPLETE",
            "blimp demo --scenes kill-worker,s",
            ["kill-worker,stop-broker"],
        ),
        ("ground_station", "_GROUND_COMPLETE", "ground sensor ba", ["baro"]),
        ("ground_station", "_GROUND_COMPLETE", "ground mode l", ["land", "loiter"]),
    ],
)
def test_a_shell_completes_the_names(
    program: str, variable: str, line: str, names: list[str]
) -> None:
    asked = {variable: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    _, stdout, _ = forked(program, environment={**os.environ, **asked})
    assert stdout.split() == names


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "word"),
    [("blimp airframe ch", "check"), ("ground tak", "takeoff")],
)
def test_the_tab_key_completes_a_command(typed: str, word: str) -> None:
    name, *others = typed.split()
    environment = {
        **os.environ,
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(others)),
    }
    program = str(Path(sys.executable).parent / name)
    done = ran([program], env=environment, check=True)
    assert done.stdout.split() == [word]
