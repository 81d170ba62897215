"""A command without its extra says how to install it, and ends as for a wrong setting."""

import subprocess
import sys

import pytest

RUN = "import sys; sys.modules[sys.argv.pop(1)] = None; from {} import main; main()"
BLIMP, GROUND = "blimp.__main__", "blimp.ground"
PAGE = ("starlette", "uvicorn", "websockets", "segno")
SERVES_PAGE = ("page", "--port", "0", "--broker", "redis://127.0.0.1:1/0")
CASES = [
    *[(name, "page", GROUND, 2, SERVES_PAGE) for name in PAGE],
    *[(name, "page", BLIMP, 1, ("log", "replay", "x.mcap")) for name in PAGE[:3]],
    ("numpy", "analysis", BLIMP, 1, ("tune", "identify", "x.mcap")),
    ("numpy", "analysis", BLIMP, 1, ("sim", "speed")),
    ("numpy", "analysis", BLIMP, 1, ("sim", "replay", "--airframe", "twin", "--log", "x.csv")),
]


@pytest.mark.parametrize(("package", "extra", "program", "status", "words"), CASES)
def test_a_missing_extra_is_one_line_with_its_cure(
    package: str, extra: str, program: str, status: int, words: tuple[str, ...]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RUN.format(program), package, *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert (ended.returncode, f"[{extra}]" in ended.stderr) == (status, True), ended.stderr
