"""The damping of the swing, flown: what `blimp sim swing` prints and draws."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blimp import airframe
from blimp.cli import app
from blimp.errors import AirframeError, ConfigError
from blimp.service.tune.swing import Swing, draw, swing

RUN = CliRunner()


@pytest.mark.long
def test_thrust_damps_the_swing_several_times_faster(tmp_path: Path) -> None:
    picture = tmp_path / "swing.png"
    ended = RUN.invoke(app, ["sim", "swing", "--out", str(picture), "--json"])
    assert (ended.exit_code, ended.stderr) == (0, "")
    off, on = json.loads(ended.stdout)["swings"]
    assert (off["damping"], on["damping"]) == (0.0, 0.15)
    assert on["decay_s"] < 0.4 * off["decay_s"]
    assert on["rest_deg"] < 0.7 * off["rest_deg"]
    assert on["strayed_m"] < 0.5
    assert picture.read_bytes().startswith(b"\x89PNG")
    ended = RUN.invoke(app, ["sim", "swing", "--out", str(picture)])
    assert f"{picture} written: " in ended.stderr


def test_a_ship_that_cannot_hover_and_a_picture_that_cannot_be_written_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(AirframeError, match="none lifts"):
        swing(airframe.load("rgblimp"), damping=0.1)
    one = Swing(
        damping=0.0, decay_s=1.0, rest_deg=0.1, strayed_m=0.1, angles_deg=((0.0, 1.0, 1.0),)
    )
    with pytest.raises(ConfigError, match="no-such-directory"):
        draw([one], tmp_path / "no-such-directory" / "swing.png", ship="gtmab")
