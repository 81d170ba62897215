"""docs/pi.md, typed line by line as it is printed: on the box, and on a laptop beside it.

    python -m tests.box.page                # leaves build/box/SUITE/installed.raw
    python -m tests.box.page --part "ssh -N"  # the rest, on a copy of that card

The card is kept where the ship is installed and the reader has logged out: `installed.raw`. Every
indented block of the page is either what a program prints, or commands. Each line of
commands is run, or is in `NOT_IN_A_BOX` with its reason; a test holds the two tables to the page.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from blimp.closing import Closing
from ground_station.report import NO_LINK
from tests.box.image import ARCHS, SUITES, Image
from tests.box.machine import Box
from tests.box.world import OutsideWorld, twin, unwire, wire
from tests.repeating import until
from tests.test_shell_blocks import ROOT, typed

PAGE = ROOT / "docs" / "pi.md"
_BLOCK = re.compile(r"(?<=\n\n) {4,}\S.*(?:\n(?: {4,}.*|(?=\n {4})))*", re.M)

# Blocks that are no commands, by how they begin.
SHOWN = (
    "battery + -", "ok       interpreter", "ok       camera", "ok       configuration",
    "16:20:57.900476", "Motors: begin",
)  # fmt: skip
# Where the reader sits: blocks by how they begin. All others are typed on the Pi.
LAPTOP = (
    "git bundle", "python3 -m venv .venv &&", "ssh -N", ". .venv/bin/activate", "ssh -t pilot@",
    "pip install --dry-run",
)  # fmt: skip
NOT_IN_A_BOX = {
    "sudo raspi-config": "Raspberry Pi's own program",
    "echo dt": "the settings of a Pi's boot loader",
    "ls /dev/ttyAMA*": "a Pi's serial ports",
    "i2cdetect -y 1": "no chips: the simulated ones are below the drivers, not below the kernel",
    "sudo systemctl stop blimp-flight": "the next line",
    "sudo env LG_WD=": "flies real chips: the unit alone has the simulated ones",
    "sudo blimp bench": "the line before it",
    "nmcli": "no Wi-Fi",
    "sudo nmcli": "no Wi-Fi",
}
TYPED = {"sudo blimp init": "\n\n\n"}  # "press Enter three times"
# Its exit status is 1 if flying would be refused: by these, which only a Pi has.
DOCTOR = "sudo blimp doctor"
STATUS = "systemctl status"
REFUSED_FOR = ("gpio", "i2c", "serial", "identities", "groups", "bus scan")
INSTALLED = "sudo usermod -aG blimp"  # the last line before the card is kept
BESIDE = ("ssh -N", "ground page")  # they run until Ctrl-C
WITHIN_S = 5400.0  # outside, for a line, on a busy machine


def blocks() -> list[tuple[int, str]]:
    """Return the blocks of commands with their lines in the page."""
    text = PAGE.read_text("utf-8")
    found = ((text[: m.start()].count("\n") + 1, m[0]) for m in _BLOCK.finditer(text))
    return [(line, block) for line, block in found if not block.strip().startswith(SHOWN)]


def reason(line: str) -> str | None:
    """Return why a box cannot do this line; None if it can."""
    return next((why for words, why in NOT_IN_A_BOX.items() if line.startswith(words)), None)


class Laptop(Closing):
    """A reader's shell on this machine, in a clone of HEAD. Its `ssh` finds the box."""

    def __init__(self, box: Box, home: Path) -> None:
        self.clone = home / "blimp"
        git = ["git", "-c", "safe.directory=*"]
        subprocess.run([*git, "clone", "-q", str(ROOT), str(self.clone)], check=True)
        subprocess.run([*git, "checkout", "-q", "-B", "main"], cwd=self.clone, check=True)
        self._session = home / "session"
        self._session.write_text(f"cd {self.clone}\n")
        config, binary = home / "ssh_config", home / "bin"
        options = zip(*[iter(box.options)] * 2, strict=True)
        lines = [f"  {' '.join(value.split('=', 1))}" for key, value in options if key == "-o"]
        lines.append(f"  IdentityFile {box.image.key}")
        config.write_text("\n".join(["Host ship.local 10.42.0.1", *lines, ""]))
        binary.mkdir()
        for name in ("ssh", "scp"):
            (binary / name).write_text(f'#!/bin/sh\nexec /usr/bin/{name} -F {config} "$@"\n')
            (binary / name).chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{binary}:{os.environ['PATH']}"}
        self._environment.pop("VIRTUAL_ENV", None)
        self._beside: list[subprocess.Popen[bytes]] = []

    def type(self, line: str) -> str:
        """Run a line to its end, or beside the next ones. Raises AssertionError if it fails."""
        kept = f"(pwd | sed 's/^/cd /'; export -p) > {self._session}"
        script = f". {self._session}\n{line}\nstatus=$?\n{kept}\nexit $status"
        if line.startswith(BESIDE):
            tunnel = re.search(r"-L ([^:]+):", line)
            if tunnel is not None:
                Path(tunnel[1]).unlink(missing_ok=True)  # an earlier one's
            self._beside.append(
                subprocess.Popen(["bash", "-c", f". {self._session}\nexec {line}"],
                                 env=self._environment, stdin=subprocess.DEVNULL)
            )  # fmt: skip
            if tunnel is not None:  # who types the next line has seen the password's prompt
                until(Path(tunnel[1]).exists, "the tunnel is not open", within_s=WITHIN_S)
            return "(runs beside the next lines)"
        until_s = time.monotonic() + WITHIN_S
        while True:
            ended = subprocess.run(
                ["bash", "-c", script], env=self._environment, stdin=subprocess.DEVNULL,
                check=False, capture_output=True, text=True, timeout=WITHIN_S,
            )  # fmt: skip
            # Two seconds of a laptop may be a tenth of the box's, which is slower: type it again.
            if ended.returncode != NO_LINK or time.monotonic() > until_s:
                break
        assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        return ended.stdout

    def send_the_program(self) -> None:
        for line in typed(next(text for _, text in blocks() if "git bundle" in text)):
            self.type(line)

    def close(self) -> None:
        for process in self._beside:
            process.terminate()
            process.wait()
        self._beside.clear()


def type_on_the_box(box: Box, line: str) -> str:
    """As the same reader, who stays in the directory where the last line left them."""
    keys = next((keys for words, keys in TYPED.items() if line.startswith(words)), "")
    script = (
        f'cd "$(cat ~/.cwd 2>/dev/null || echo ~)"\n{line}\nstatus=$?\npwd > ~/.cwd\nexit $status'
    )
    ended = box.ssh(script, typed=keys, check=False, timeout_s=WITHIN_S)
    said = ended.stdout + ended.stderr
    if line.startswith(STATUS):
        idle = set(re.findall(r"^[^●\s] (blimp\S*)", said, re.MULTILINE))
        assert idle <= {"blimp-page.service"}, said
    elif DOCTOR in line and ended.returncode == 1:
        red = set(re.findall(r"^error +(.*?)  ", said, re.MULTILINE))
        assert red <= {*REFUSED_FOR, "broker"}, said
    else:
        assert ended.returncode == 0, f"{line}\n{said[-4000:]}"
    return said


def follow(box: Box, laptop: Laptop, *, part: str = "") -> Iterator[tuple[str, float, str]]:
    """Type the page; yield each line, how long it took outside in seconds, and what it said.

    part: begin with the block that begins so, and with what the laptop has before it. A line that
    a box cannot do yields its reason.
    """
    for _, block in blocks():
        words = block.strip()
        if words.startswith(part):
            part = ""
        elif not words.startswith(LAPTOP):
            continue
        if words.startswith("sudo blimp install-service"):
            wire(box)
        if words.startswith("sudo blimp uninstall-service"):
            box.ssh("sudo systemctl stop blimp.target")
            unwire(box)
        if words.startswith("sudo systemctl stop blimp.target"):  # "make it, and send it"
            news = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty"]
            subprocess.run(["git", *news, "-m", "news"], cwd=laptop.clone, check=True)
            laptop.send_the_program()
        for line in typed(block):
            if (why := reason(line)) is not None:
                yield line, 0.0, f"NOT RUN: {why}"
                continue
            began_s = time.monotonic()
            here = words.startswith(LAPTOP)
            said = laptop.type(line) if here else type_on_the_box(box, line)
            yield line, time.monotonic() - began_s, said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.box.page", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--arch", choices=ARCHS, default="amd64", help="default amd64")
    parser.add_argument("--part", default="", metavar="WORDS", help="begin with this block")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="default /dev/shm")
    options = parser.parse_args()
    image = Image(options.suite, options.arch)
    installed = image.directory / "installed.raw"
    log = image.directory / "page.json"
    rows = []
    with tempfile.TemporaryDirectory(dir=options.memory, prefix="box-") as name:
        box = Box(image, Path(name))
        box.put_in(installed if options.part else image.disk)
        with OutsideWorld(twin(), directory=Path(name)) as world, box:
            began_s = time.monotonic()
            box.boot(world_port=world.port)
            print(f"{time.monotonic() - began_s:7.0f} s  boot: {box.says('systemd-analyze')}")
            with Laptop(box, Path(name)) as laptop:
                for line, took_s, said in follow(box, laptop, part=options.part):
                    rows.append({"line": line, "took_s": round(took_s, 1), "said": said[-3000:]})
                    print(f"{took_s:7.0f} s  {line}  {said * said.startswith('NOT')}", flush=True)
                    log.write_text(json.dumps(rows, indent=1))
                    if line.startswith(INSTALLED):
                        box.switch_off()
                        copy = ["cp", "--sparse=always", str(box.disk), str(installed)]
                        subprocess.run(copy, check=True)
                        print(installed, flush=True)
                        world.restart()
                        box.boot(world_port=world.port)
            box.switch_off()
    return 0


if __name__ == "__main__":
    sys.exit(main())
