"""A command whose extra is missing says how to install it, and ends as for a wrong setting."""

import sys
from pathlib import Path

import pytest

from blimp.distribution import needing
from blimp.errors import ConfigError
from tests.forked import ran

ROOT = Path(__file__).parents[1]
RUN = "import sys; sys.modules[sys.argv.pop(1)] = None; from {} import main; sys.exit(main())"
BLIMP, GROUND = "blimp.__main__", "blimp.ground"
QUEUE = "blimp.queue.cli.main"
PAGE = ("starlette", "uvicorn", "websockets", "segno")
NO_BROKER = ("--broker", "redis://127.0.0.1:1/0")
CASES = [
    *[(name, "page", GROUND, 2, ("page", "--port", "0", *NO_BROKER)) for name in PAGE],
    *[(name, "page", QUEUE, 2, ("page", "-A", "tests.queue.page_app:app")) for name in PAGE[:3]],
    *[(name, "page", BLIMP, 1, ("log", "replay", "x.mcap")) for name in PAGE[:3]],
    *[("mcap", "ship", BLIMP, 1, ("log", word, "x.mcap")) for word in ("info", "export")],
    ("mcap", "ship", BLIMP, 1, ("log", "record", "--runtime-dir", "/nonexistent")),
    ("pymavlink", "mavlink", BLIMP, 1, ("mavlink", "--listen", "udp:127.0.0.1:0", *NO_BROKER)),
    ("numpy", "camera", BLIMP, 2, ("camera", "--device", "/dev/null", "--runtime-dir", "none")),
    ("matplotlib", "plot", BLIMP, 1, ("log", "plot", "x.mcap")),
    ("matplotlib", "plot", BLIMP, 1, ("sim", "swing", "--out", "x.png")),
    ("numpy", "analysis", BLIMP, 1, ("identify", "x.mcap")),
    ("numpy", "analysis", BLIMP, 1, ("sim", "speed")),
    ("numpy", "analysis", BLIMP, 1, ("sim", "replay", "--airframe", "twin", "--log", "x.csv")),
]


@pytest.mark.parametrize(("package", "extra", "program", "status", "words"), CASES)
@pytest.mark.long
def test_a_missing_extra_is_one_line_with_its_cure(
    package: str, extra: str, program: str, status: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    ended = ran(
        [sys.executable, "-c", RUN.format(program), package, *words],
        timeout=60,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "BLIMP_LOG_DIR": str(tmp_path), "BLIMP_LOG_MB": "10"},
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert (ended.returncode, f"[{extra}]" in ended.stderr) == (status, True), ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


# Each command of a program, of which it prints the help; the last line says how many there are.
EVERY_HELP = """
import contextlib, sys
sys.modules.update(dict.fromkeys({absent}))
from typer.main import get_command
from {program} import main
from {table} import app

def commands(command, *words):
    yield words
    for name, part in getattr(command, "commands", {{}}).items():
        yield from commands(part, *words, name)

every = list(commands(get_command(app)))
for words in every:
    sys.argv[1:] = [*words, "--help"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
print(len(every))
"""


@pytest.mark.parametrize(
    ("program", "table", "at_least"),
    [(GROUND, "ground_station.commands", 31), (BLIMP, "blimp.cli", 43)],
)
def test_every_help_is_printed_without_any_extra(
    program: str, table: str, at_least: int, tmp_path: Path
) -> None:
    absent = (
        *PAGE,
        "mcap",
        "lz4",
        "zstandard",
        "numpy",
        "matplotlib",
        "foxglove",
        "tomlkit",
        "PIL",
    )
    code = EVERY_HELP.format(absent=absent, program=program, table=table)
    ended = ran(
        [sys.executable, "-c", code], timeout=60, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    *lines, count = ended.stdout.splitlines()
    assert int(count) >= at_least
    assert sum(line.lower().startswith("usage: ") for line in lines) == int(count)


@pytest.mark.parametrize(
    ("package", "extra", "code"),
    [
        ("sqlalchemy", "sql", "App('x', broker='memory://', result_backend='db+sqlite:///x.db')"),
        ("prometheus_client", "metrics", "import blimp.queue.extras.observability.metrics"),
        ("foxglove", "foxglove", "LiveView(0)"),  # the recorder says it, and records without
        ("tomlkit", "bench", "AirframeFile(__import__('pathlib').Path('x.toml'))"),
    ],
)
def test_a_library_whose_extra_is_missing_is_a_wrong_setting(
    package: str, extra: str, code: str
) -> None:
    lines = (
        f"import sys; sys.modules['{package}'] = None",
        "from blimp.errors import ConfigError",
        "from blimp.queue import TaskApp as App",
        "from blimp.service.bench.airframe_file import AirframeFile",
        "from blimp.service.logs.live_view import LiveView",
        f"try: {code}",
        "except ConfigError as error: print(error)",
    )
    ended = ran([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
    assert f"[{extra}]" in ended.stdout, ended


def test_a_module_of_our_own_is_never_taken_for_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"blimp\.no_such"), needing("page", "it needs"):
        import blimp.no_such  # type: ignore[import-not-found]  # noqa: F401


def test_a_package_that_is_there_and_broken_says_how() -> None:
    with (
        pytest.raises(ConfigError, match=r"it needs more: cannot import name 'no_such' .*\[page\]"),
        needing("page", "it needs"),
    ):
        from json import no_such  # type: ignore[attr-defined]  # noqa: F401
