from pathlib import Path

from typer.testing import CliRunner

from blimp.camera import tag_map
from blimp.cli import app


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output + str(done.exception or "")


def test_a_printed_room_and_its_map(tmp_path: Path) -> None:
    pdf = tmp_path / "room.pdf"
    code, said = run("tags", "print", str(pdf), "--rows", "1", "--columns", "3")
    assert code == 0, said
    assert pdf.read_bytes().startswith(b"%PDF")
    made = tag_map.load(tmp_path / "room.toml")
    assert [tag.id for tag in made.tags if tag.id < 500] == [0, 2]
    code, said = run("tags", "print", str(pdf), "--size-mm", "nan")
    assert (code, "must be 20 to 160 mm" in said) == (2, True)


def test_pictures_that_cannot_be_read(tmp_path: Path) -> None:
    out, picture = tmp_path / "lens.toml", tmp_path / "a.jpg"
    picture.write_bytes(b"no picture")
    code, said = run("camera", "calibrate", str(picture), "--out", str(out))
    assert code != 0
    assert "no picture can be read" in said
    assert not out.exists()
    words = ("tags", "survey", str(picture), "--map", "none", "--lens", "none", "--out", str(out))
    code, said = run(*words)
    assert code != 0
    assert "tag map none" in said
