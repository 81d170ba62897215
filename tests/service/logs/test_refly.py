"""A recorded flight that is flown again: the same to the bit, and a difference is found."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from blimp.cli import app
from blimp.errors import LogError
from blimp.recording.log_file import LogFile
from blimp.recording.recording import open_recording
from blimp.recording.tape import Session
from blimp.service.compose import LAID_DOWN_S
from blimp.service.logs.refly import refly
from blimp.ship.lockstep import Lockstep
from tests.recording.conftest import flown

__all__ = ["flown"]


def changed(path: Path, out: Path, session: Session, *, without: str = "") -> Path:
    """Write the same log with another session; without: drop the messages with these bytes."""
    with open_recording(path) as log, LogFile(out, session) as new:
        for number in range(len(log.chunks)):
            for message in log.messages(number):
                if not without or without.encode() not in message.data:
                    new.add(message)
    return out


def test_a_flight_in_lockstep_is_the_same_to_the_bit(flown: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["log", "refly", str(flown), "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert list(found) == ["same", "first_difference_s", "max_difference_m"]
    assert found == {"same": True, "first_difference_s": None, "max_difference_m": 0.0}
    assert said.stderr == ""
    out = tmp_path / "again.mcap"
    said = CliRunner().invoke(app, ["log", "refly", str(flown), "--out", str(out)])
    assert (
        said.stderr == f"{out} written; blimp log report {flown} {out} compares the two flights\n"
    )
    assert out.exists()


def test_a_fault_that_was_not_there_is_a_difference_from_then_on(
    flown: Path, tmp_path: Path
) -> None:
    with open_recording(flown) as log:
        session = log.session
        (at_s,) = (one.t_s for one in log.entries({"/injected"}) if one.data["what"] == "fault")
    other = changed(flown, tmp_path / "other.mcap", session, without='"no_answer"')
    again = tmp_path / "again.mcap"
    found = refly(other, out=again)
    assert not found.same
    assert found.first_difference_s == pytest.approx(at_s, abs=0.2)
    assert found.max_difference_m > 0.001
    with open_recording(again) as log:
        assert log.complete


def test_a_ship_in_real_time_lies_as_still_at_first_as_it_did(tmp_path: Path) -> None:
    lockstep = tmp_path / "lockstep.mcap"
    with Lockstep("twin", wind_mps=0.5, log=lockstep, held=True) as ship:
        ship.step(LAID_DOWN_S - ship.now_s)
        ship.hold(False)
        ship.step(1.0)
    with open_recording(lockstep) as log:
        session = msgspec.structs.replace(log.session, lockstep=False)
    # A log of the simulated world in real time says nothing of it.
    real_time = changed(lockstep, tmp_path / "real_time.mcap", session, without='"hold"')
    again = tmp_path / "again.mcap"
    assert refly(real_time, out=again).same
    with open_recording(again) as log:
        held = {one.data["cycle"]: one.data["options"] for one in log.entries({"/injected"})}
    assert held == {0: {"held": True}, LAID_DOWN_S * session.rate_hz: {"held": False}}


def test_what_cannot_be_flown_again_is_said(flown: Path, tmp_path: Path) -> None:
    with open_recording(flown) as log:
        session = log.session
    real = msgspec.structs.replace(session, simulated=False)
    with pytest.raises(LogError, match="not a simulated flight"):
        refly(changed(flown, tmp_path / "real.mcap", real))
    odd = msgspec.structs.replace(session, airframe={"name": "x"})
    with pytest.raises(LogError, match="its airframe: "):
        refly(changed(flown, tmp_path / "odd.mcap", odd))
    late = tmp_path / "late.mcap"
    with open_recording(flown) as log, LogFile(late, session) as new:
        for message in log.messages(len(log.chunks) - 1):
            new.add(message)
    with pytest.raises(
        LogError, match=r"begins at cycle \d+: the cycles before are in another log"
    ):
        refly(late)
