"""What `blimp` alone says in each place."""

from pathlib import Path

import pytest

from blimp.config import registry_dir
from blimp.link.registry import register
from blimp.service.airframes import weighing
from tests.forked import forked


def test_blimp_without_words_says_it(tmp_path: Path) -> None:
    status, stdout, stderr = forked("blimp", environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert (status, stderr) == (0, "")
    assert "blimp --help" in stdout
    assert "Usage" not in stdout


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("ground_station", "trajectory"), ("ground_station", "mission check"),
        ("blimp", "sim track"), ("blimp", "airframe check"),
    ],
)  # fmt: skip
def test_a_sample_is_printed_and_can_be_used(program: str, command: str, tmp_path: Path) -> None:
    from blimp import airframe
    from ground_station.mission_file import load_mission
    from ground_station.trajectory import read_curve

    words = command.split()
    status, stdout, stderr = forked(program, *words, "--example", environment={})
    assert (status, stderr) == (0, "")
    file = tmp_path / ("one.csv" if words[-1] in ("track", "trajectory") else "one.toml")
    file.write_text(stdout)
    if file.suffix == ".csv":
        assert read_curve(file).duration_s == 60.0
    elif program == "ground_station":
        assert load_mission(str(file)).name == "example"
    else:
        assert airframe.load(str(file)).name == "twin"


def test_trim_asks_the_stack_that_ground_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(weighing, "ON_BOARD_DIR", tmp_path / "on_board")
    assert weighing._where_it_runs() == tmp_path / "on_board"  # neither is there
    register(
        registry_dir() / "twin.json", vehicle="twin", broker="redis://h/0", runtime_dir=tmp_path
    )
    assert weighing._where_it_runs() == tmp_path
    (tmp_path / "on_board").mkdir()
    assert weighing._where_it_runs() == tmp_path / "on_board"
