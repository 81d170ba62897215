"""Interpreter, clock, power, disk and jitter."""

import os
import shlex
import sys
from importlib import resources
from pathlib import Path

import pytest

from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.service.airframes.check import check_file
from blimp.service.computer.configuration import Configuration, read_configuration
from blimp.service.doctor import system
from blimp.service.doctor.computer import Finding, clock_is_synchronised
from tests.forked import blimp
from tests.service.doctor.pi import THROTTLED, Pi, worst


@pytest.mark.parametrize(
    ("flags", "state", "found"),
    [
        ("0", "ok", "no under-voltage"),
        ("50005", "error", "under-voltage now"),
        ("50000", "warning", "under-voltage since the boot"),
        ("20000", "ok", "no under-voltage"),  # throttled by heat, not by its supply
        ("", "warning", "does not say"),
    ],
)
def test_the_firmwares_flags(pi: Pi, flags: str, state: str, found: str) -> None:
    pi.write(THROTTLED, flags)
    (finding,) = system.power(pi.computer())
    assert finding.state == state
    assert found in finding.found
    assert (finding.cure == "") == (state == "ok")


def test_a_clock_that_nobody_sets_is_a_warning(pi: Pi) -> None:
    assert [f.state for f in system.clock(pi.computer(synchronised=lambda: True))] == ["ok"]
    (finding,) = system.clock(pi.computer(synchronised=lambda: False))
    assert (finding.state, "NTP" in finding.cure) == ("warning", True)
    assert clock_is_synchronised() in (True, False)


def test_the_disk(pi: Pi, monkeypatch: pytest.MonkeyPatch) -> None:
    free_mb = system.FREE_MB
    assert [f.state for f in system.disk(pi.computer())] == ["ok"]
    monkeypatch.setattr(system, "FREE_MB", (free_mb[0], 10**9))
    assert [f.state for f in system.disk(pi.computer())] == ["warning"]
    monkeypatch.setattr(system, "FREE_MB", (10**9, 10**9))
    (finding,) = system.disk(pi.computer())
    assert (finding.state, "journalctl" in finding.cure) == ("error", True)


class LateClock(ManualClock):
    """Wakes its caller late by `late_s`."""

    late_s = 0.0

    def sleep_until(self, deadline_s: float) -> None:
        super().sleep_until(deadline_s + self.late_s)


def test_jitter_is_measured(pi: Pi) -> None:
    clock = LateClock()
    (finding,) = system.jitter(pi.computer(clock=clock))
    assert finding.state == "ok"
    assert finding.found.startswith("99 % within 0.00 ms of 100 wake-ups")
    clock.late_s = 0.003
    (finding,) = system.jitter(pi.computer(clock=clock))
    assert (finding.state, "governor" in finding.cure) == ("warning", True)
    assert "99 % within 3.00 ms" in finding.found


def test_the_configuration_and_the_interpreter(pi: Pi) -> None:
    assert [f.state for f in system.configuration(pi.computer())] == ["ok"]
    (finding,) = system.configuration(pi.computer(config_problem="configuration x: bad"))
    assert (finding.state, finding.cure) == ("error", "write one: sudo blimp init")
    assert [f.state for f in system.interpreter(pi.computer())] == ["ok"]


def test_a_number_of_the_airframes_file_that_has_no_effect_is_named(pi: Pi) -> None:
    path = pi.root / "mine.toml"
    twin = resources.files("blimp.airframes").joinpath("twin.toml").read_text("utf-8")
    path.write_text(f"{twin}\n[estimator]\nplumb_gain = 0.12\n")
    configuration = Configuration(airframe=str(path))
    found = worst(list(system.configuration(pi.computer(configuration=configuration))))
    assert (found.state, found.cure) == ("warning", f"sudo nano {path}")
    assert found.found == "estimator.plumb_gain has no effect in this version: delete its line"
    assert check_file(str(path)).warnings == (found.found,)


@pytest.mark.parametrize("text", [None, "config_version = 2\n", "airfame = 'twin'\n", "broken"])
def test_the_cure_of_a_configuration_works_as_printed(pi: Pi, text: str | None) -> None:
    path = pi.root / "of a ship.toml"
    if text is not None:
        path.write_text(text)
    cure = _configuration(pi, path).cure
    said, _, command = cure.rpartition(": sudo blimp ")
    assert said == ("write one" if text is None else "correct it, or write it again")
    words = shlex.split(command)
    assert words[1:3] == ["--config", str(path)], "else it writes this machine's own"
    assert blimp(*words).returncode == 0
    assert _configuration(pi, path).state == "ok"


def test_a_configuration_that_this_user_may_not_read_is_not_to_be_replaced(pi: Pi) -> None:
    path = pi.root / "locked" / "blimp.toml"
    pi.write("locked/blimp.toml", "config_version = 1\n")
    path.parent.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        finding = _configuration(pi, path)
    finally:
        os.seteuid(user)
        path.parent.chmod(0o700)
    assert finding.found.endswith("Permission denied")
    assert finding.cure == f"run it as root: sudo blimp doctor --config {path}"


def _configuration(pi: Pi, path: Path) -> Finding:
    problem = ""
    try:
        read_configuration(path)
    except ConfigError as error:
        problem = str(error)
    computer = pi.computer(config_path=path, config_problem=problem, root=Path("/"))
    (finding,) = system.configuration(computer)
    return finding


def test_a_32_bit_userland_is_named_with_its_cure(pi: Pi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    (finding,) = system.interpreter(pi.computer())
    assert finding.state == "warning"
    assert "32 bits: not supported" in finding.found
    assert "64-bit Raspberry Pi OS Lite" in finding.cure
