"""A path flown in Lockstep, and what its command prints."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.track import plant, reference
from blimp.cli import app
from blimp.errors import MissionError
from blimp.service.tune.track import track
from ground_station.trajectory import ReferenceCurve, read_curve

pytestmark = pytest.mark.long

RUN = CliRunner()


def circle_file(path: Path, *, seconds: float = 22.0, radius: float = 0.8) -> Path:
    rows = ["time,x_ref,y_ref,z_ref,psi_ref"]
    for k in range(round(seconds * 20.0) + 1):
        a = 2.0 * math.pi * k / 20.0 / 45.0
        rows.append(f"{k / 20.0:.3f},{radius * math.cos(a):.4f},{radius * math.sin(a):.4f},-1.3,0")
    path.write_text("\n".join(rows))
    return path


@pytest.mark.slow
def test_it_flies_a_file_and_prints_the_errors_of_the_true_ship(tmp_path: Path) -> None:
    file, log = circle_file(tmp_path / "circle.csv"), tmp_path / "log.csv"
    words = ["sim", "track", "--airframe", "gtmab", "--reference", str(file), "--seed", "3"]
    words += ["--heaviness-n", "0.005", "--gust-mps", "0.1", "--drag-scale", "1.5"]
    words += ["--thrust-scale", "0.9", "--pose-sensor", "mocap", "--log", str(log), "--json"]
    result = RUN.invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == [
        "rmse_3d_m",
        "rmse_m",
        "yaw_rmse_deg",
        "step_ms",
        "saturated_fraction",
        "speedup",
        "estimate_3d_m",
        "behind_s",
    ]
    assert list(found["step_ms"]) == ["compute_mean", "compute_p99", "bus_mean"]
    assert 0.001 < found["rmse_3d_m"] < 0.053  # the best published, over the whole circle
    assert found["rmse_3d_m"] == pytest.approx(math.hypot(*found["rmse_m"]), abs=1e-4)
    assert found["yaw_rmse_deg"] < 2.0
    assert found["saturated_fraction"] < 0.05
    lines = log.read_text().splitlines()
    assert lines[0] == "time,x_ref,y_ref,z_ref,psi_ref,x,y,z,psi"
    assert len(lines) == 2201
    assert result.stderr == ""
    result = RUN.invoke(app, words[:-1])
    assert f"{log} written: reference and true path" in result.stderr


@pytest.mark.parametrize(("name", "seed"), [("circle", 3002), ("eight_tall", 3005)])
def test_with_the_stock_tag_a_ship_follows_little_of_its_noise(name: str, seed: int) -> None:
    found = track(reference(name), plant=plant(seed), pose_sensor="tag")
    assert found.behind_s == 0.0
    assert found.rmse_3d_m < 1.25 * found.estimate_3d_m


def test_a_reference_that_is_too_short_is_refused() -> None:
    with pytest.raises(MissionError, match="lasts 1 s, must be more than 20 s"):
        track(ReferenceCurve([(0.0, 0.0, 0.0, -1.0, 0.0), (1.0, 0.0, 0.0, -1.0, 0.0)]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t,x\n", "the first line is 't,x', must be 'time,x_ref"),
        ("time,x_ref,y_ref,z_ref,psi_ref\n0,0,0,-1,0\n", "1 points, must be at least 2"),
        ("time,x_ref,y_ref,z_ref,psi_ref\n0,nan,0,-1,0\n", "line 2: x_ref is 'nan'"),
        (
            "time,x_ref,y_ref,z_ref,psi_ref\n1,0,0,-1,0\n1,0,0,-1,0\n",
            "line 3: time 1 is not later than 1",
        ),
    ],
)
def test_a_bad_file_is_refused_naming_line_column_and_limit(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(MissionError) as refused:
        read_curve(file)
    assert words in str(refused.value)


def test_velocities_come_from_the_file_or_from_the_curve(tmp_path: Path) -> None:
    curve = read_curve(circle_file(tmp_path / "circle.csv"))
    point = curve.points()[100]
    a = 2.0 * math.pi / 45.0
    assert point[0] == 10.0
    assert point[5] == pytest.approx(0.8 * a * math.cos(10.0 * a), abs=1e-3)
    file = tmp_path / "rates.csv"
    header = "time,x_ref,y_ref,z_ref,psi_ref,vx_ref,vy_ref,vz_ref,psi_rate_ref\n"
    file.write_text(header + "5,0,0,-1,0,0.1,0,-0.2,0.3\n6,0.1,0,-1,0,0.1,0,-0.2,0.3\n")
    assert read_curve(file).points()[0] == [0.0, 0.0, 0.0, 1.0, 0.1, 0.0, 0.2, 0.0, 0.3]
