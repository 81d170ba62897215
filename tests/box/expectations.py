"""What a ship does when its power goes, and what must be so afterwards.

The expectations are asked through ssh of a ship that has booted, and through chroot of a card that
no computer has. An activity says `begin NAME STEP TIME` and `done NAME STEP TIME`, as the program
that did the step has said it; the time is the ship's own.
"""

import datetime
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from blimp.link.paths import LOCAL_BROKER

Ask = Callable[[str], str]  # a line at the shell, and what it prints

UNITS = tuple(f"blimp-{name}" for name in ("broker", "flight", "worker", "relay", "recorder"))
_ACTIVE = f"systemctl is-active {' '.join(UNITS)} | sort -u"
ALL_ACTIVE = f'[ "$({_ACTIVE})" = active ]'  # a condition of the shell
GROUND = f"ground --broker '{LOCAL_BROKER}'"
SET = f"{GROUND} param limits.speed_mps"
# Documented windows: docs/resources.md and docs/faults.md ("about the last second"; Redis itself
# waits two for an fsync before it blocks), docs/log.md ("at most the last second"), each with a
# second for the card.
QUEUE_S, LOG_S = 3.0, 2.0
OWN = "/usr/local/lib/cuts"  # of this program, on the card
_PYTHON = "/opt/blimp/.venv/bin/python"
_QUEUE = f"""
import sys, time
from blimp.queue import TaskApp
app = TaskApp("cuts", broker={LOCAL_BROKER!r})
@app.task(name="cuts.wait", idempotent=True)
def wait(number: int) -> None: ...
def main() -> None:
    for number in range(1, int(sys.argv[1]) + 1):
        wait.apply_async((number,), countdown=86400.0 if number % 2 else None)
        print("done queue", number, time.time(), flush=True)
        time.sleep(0.02)
if __name__ == "__main__":
    main()
"""
# The files of each installed package against the hashes of its RECORD.
_WHOLE = """
import base64, hashlib, importlib.metadata as m
bad, found = [], []
for dist in m.distributions(path=["/opt/blimp/.venv/lib/python3.11/site-packages"]):
    found.append(dist.metadata["Name"])
    if not found[-1] or dist.files is None:
        bad.append(str(dist._path))
    for file in dist.files or ():
        try:
            data = file.locate().read_bytes() if file.hash else b""
        except OSError as error:
            bad.append(str(error))
            continue
        if file.hash:
            digest = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, data).digest())
            if digest.rstrip(b"=").decode() != file.hash.value:
                bad.append(str(file))
if "blimp-autopilot" not in found:
    bad.append("blimp-autopilot is not installed")
print("\\n".join(bad[:20]))
"""
WHOLE = f"sudo python3 {OWN}/whole.py"

_STOP = "sudo systemctl stop blimp.target;"  # there is no systemd in a chroot
_VENV = "sudo rm -rf .venv && sudo python3 -m venv --system-site-packages .venv"
_PIP = "sudo .venv/bin/pip install -q -c constraints.txt"
# As docs/upgrade.md and docs/pi.md have it. The same version is installed again, so by force.
_EXTRAS = "'.[demo,bench,page]' && sudo blimp install-service"
INSTALLS = {
    "upgrade": f"cd /opt/blimp && {_STOP} {_PIP} --force-reinstall --no-deps {_EXTRAS}",
    "install": f"cd /opt/blimp && {_STOP} {_VENV} && {_PIP} {_EXTRAS}",
}


class Activity(NamedTuple):
    """What the ship does when the power goes.

    script: a line of the shell, whose steps are `$N`. steps: how many a recording has. within_s:
    how far into the next step a cut may come, in seconds outside.
    """

    script: str
    steps: int
    within_s: float


def _again(name: str, command: str) -> str:
    return (
        f"for i in $(seq 1 $N); do echo begin {name} $i $(date +%s.%N); {command} >/dev/null"
        f" && echo done {name} $i $(date +%s.%N); done"
    )


ACTIVITIES = {
    "boot": Activity("", 0, 120.0),
    "queue": Activity(
        f"cd {OWN} && {_PYTHON} -m blimp.queue queues purge cuts -A cuts:app --yes && "
        f"{_PYTHON} -m cuts $N",
        150, 30.0,
    ),
    "parameters": Activity(_again("parameters", f"{SET} 0.$((20 + i % 30))"), 4, 30.0),
    "init": Activity(
        "sudo mkdir -p /etc/blimp/cuts; " + _again("init",
            "sudo blimp init --force --sign --new-key --config /etc/blimp/cuts/blimp.toml "
            "--airframe twin --vehicle ship$i --broker rediss://ground.local:6379/0",
        ), 4, 30.0,
    ),
    "flight": Activity(
        f"until {GROUND} arm; do sleep 1; done; {GROUND} takeoff 1 && "
        f"{_again('flight', 'sleep 1')}; {GROUND} land",
        10, 60.0,
    ),
    "upgrade": Activity(_again("upgrade", f"({INSTALLS['upgrade']})"), 1, 300.0),
    "install": Activity(_again("install", f"({INSTALLS['install']})"), 1, 300.0),
}  # fmt: skip


def prepare(root: Path) -> None:
    """Put on a card, whose file system is at `root`, what the expectations need."""
    own = root / OWN.removeprefix("/")
    own.mkdir(parents=True, exist_ok=True)
    (own / "cuts.py").write_text(_QUEUE)
    (own / "whole.py").write_text(_WHOLE)
    for name, before in (("etc/systemd/system", "units"), ("etc/blimp", "configuration")):
        subprocess.run(["cp", "-aT", str(root / name), str(own / before)], check=True)


class Found(NamedTuple):
    """What is wrong after a cut, in words; and what is worth a line."""

    faults: list[str]
    notes: dict[str, object]


class Said(NamedTuple):
    is_done: bool
    name: str
    step: int
    at_s: float


def parsed(lines: list[str]) -> list[Said]:
    words = (line.split() for line in lines)
    return [
        Said(w[0] == "done", w[1], int(w[2]), float(w[3]))
        for w in words if len(w) == 4 and w[0] in ("begin", "done")
    ]  # fmt: skip


class Look:
    """Looks at a ship after a cut, by `ask`. lines: what its activities have said before it."""

    def __init__(self, ask: Ask, lines: list[str]) -> None:
        self._ask = ask
        self._said = parsed(lines)
        self._last_s = max((one.at_s for one in self._said), default=0.0)
        self.found = Found([], {})

    def _done(self, name: str) -> list[Said]:
        return [one for one in self._said if one.is_done and one.name == name]

    def expect(self, command: str, good: str, what: str) -> str:
        text = self._ask(command).strip()
        if re.search(good, text, re.DOTALL) is None:
            self.found.faults.append(f"{what}: {command}: {text[-500:]}")
        return text

    def program(self) -> None:
        """The program is whole; one whose installation was cut is mended by the same again."""
        installs = [one for one in self._said if one.name in INSTALLS]
        if not installs or not (broken := self._ask(WHOLE).strip()):
            return
        if installs[-1].is_done:
            self.found.faults.append(f"the program is not whole: {broken[:500]}")
            return
        self.found.notes[f"half of an {installs[-1].name}"] = broken.split("\n")[:3]
        cure = f"(({INSTALLS[installs[-1].name]}) && {WHOLE}) >/tmp/cure 2>&1 || cat /tmp/cure"
        self.expect(f"{cure}; {WHOLE}", r"^$", "the same again does not mend it")

    def running(self) -> None:
        """The ship has booted, and is safe."""
        waiting = f"until {ALL_ACTIVE}; do sleep 1; done"
        self.expect(f"timeout 90 bash -c '{waiting}'; {_ACTIVE}", r"^active$", "a unit")
        status = f"{GROUND} --json status"
        said = self.expect(status, r'"armed":\s*false', "the ship is not known to be safe")
        self.found.notes["status"] = said[:200]
        self.expect("sudo blimp doctor --sim | grep ^error; true", r"^$", "doctor")
        self.expect("sudo dmesg | grep -cE 'EXT4-fs (error|warning)'", r"^0$", "the file system")
        self.expect("findmnt -no OPTIONS /", r"^rw", "the file system")
        journal = "sudo journalctl -b -q -o cat -p warning -u 'blimp*' | head -5"
        self.found.notes["says"] = self._ask(journal).strip()[:500]

    def files(self) -> None:
        """Configuration, units, parameters, logs: what was said to be there is."""
        read = "sudo blimp install-service --dry-run >/dev/null 2>&1 && echo read"
        self.expect(read, r"^read$", "configuration or airframe")
        drafts = r"! -name '.*'"  # of a write that was cut: nobody reads them
        self.expect(
            f"sudo find /etc/blimp /etc/systemd/system -type f -empty {drafts}",
            r"^$", "an empty file",
        )  # fmt: skip
        for copy, path in (("units", "/etc/systemd/system"), ("configuration", "/etc/blimp")):
            self.expect(
                f"sudo diff -r -x '.*' {OWN}/{copy} {path} | grep -v '^Only in /etc/blimp: cuts$'",
                r"^$", "a file is not what it was",
            )  # fmt: skip
        if done := self._done("init"):
            steps = f"({done[-1].step}|{done[-1].step + 1})"
            own = "/etc/blimp/cuts"
            self.expect(f"sudo grep ^vehicle {own}/blimp.toml", rf'"ship{steps}"$',
                        "a configuration that was said to be written")  # fmt: skip
            keys = f"sudo blimp keys show {own}/signing.key && echo whole"
            self.expect(keys, "whole$", "a key that was said to be written")
        if done := self._done("parameters"):
            numbers = (
                f"0.{20 + one % 30}".rstrip("0") for one in (done[-1].step, done[-1].step + 1)
            )
            kept = "|".join(numbers)
            self.expect("sudo cat /var/lib/blimp/parameters.json", rf'"value":({kept})}}',
                        "a parameter that was accepted")  # fmt: skip
        self._logs()

    def _logs(self) -> None:
        until_s = 0.0
        for log in self._ask("sudo find /var/lib/blimp/logs -name '*.mcap' | sort").split()[-3:]:
            read = f"sudo blimp log info --json {log}"
            saved = "/tmp/saved.mcap"
            save = f"sudo blimp log recover {log} {saved} >/dev/null"
            text = self._ask(
                f"{read} 2>/dev/null || ({save} && {read.replace(log, saved)}); sudo rm -f {saved}"
            )
            try:
                about = json.loads(text.strip().split("\n")[-1])
            except ValueError:
                self.found.notes[f"nothing in {log}"] = text.strip()[-300:]
                continue
            began_s = datetime.datetime.fromisoformat(about["started"]).timestamp()
            if began_s < self._last_s:  # else of the boot after the cut
                until_s = max(until_s, began_s + about["duration_s"])
        if done := self._done("flight"):
            short_s = round(done[-1].at_s - until_s, 2)
            self.found.notes["log_misses_s"] = short_s
            if short_s > LOG_S:
                self.found.faults.append(f"the log ends {short_s} s before what was flown")

    def queue(self) -> None:
        """Messages that were accepted wait in it, but for those of the documented window."""
        if not (done := self._done("queue")):
            return
        count = f"cd {OWN} && {_PYTHON} -m blimp.queue queues -A cuts:app -j"
        text = self.expect(f"sudo bash -c {shlex.quote(count)}", r"\{.*\}", "the queue")
        try:
            (counts,) = json.loads(text[text.index("{") :]).values()
        except ValueError:
            return
        there = counts["ready"] + counts["scheduled"]
        lost = done[there:]  # the file is a sequence: what is lost was sent last
        self.found.notes["messages"] = f"{there} of {len(done)}"
        if lost:
            self.found.notes["queue_misses_s"] = age_s = round(self._last_s - lost[0].at_s, 2)
            if age_s > QUEUE_S:
                self.found.faults.append(f"a message accepted {age_s} s before the cut is lost")
