"""Cuts the power of an installed ship at random moments, and looks at what is left.

    python -m tests.box.power_cuts --cuts 200 --seed 1 [--only flight] [--out FILE]

Needs build/box/SUITE/installed.raw, which `python -m tests.box.page` leaves. Each cut begins with
the boot after the one before it, so that what a cut has harmed is not repaired by a new card. An
activity says each step that is done, as the program that did it has said; a cut comes after a
random one of them and a random part of the next.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.box.image import SUITES, Image
from tests.box.machine import Box
from tests.box.world import OutsideWorld, twin

BROKER = "redis+socket:///var/lib/blimp/broker/broker.sock?virtual_host=0"
GROUND = f"ground --broker '{BROKER}'"
ARMED = f"{GROUND} arm && {GROUND} takeoff 1"
# The files of each installed package against the hashes of its RECORD.
_WHOLE = """
import base64, hashlib, importlib.metadata as m
bad = []
for dist in m.distributions(path=["/opt/blimp/.venv/lib/python3.11/site-packages"]):
    if dist.files is None or not dist.metadata["Name"]:
        bad.append(str(dist._path))
        continue
    for file in dist.files:
        if file.hash is not None:
            try:
                data = file.locate().read_bytes()
            except OSError as error:
                bad.append(str(error))
                continue
            found = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, data).digest())
            if found.rstrip(b"=").decode() != file.hash.value:
                bad.append(str(file))
print("\\n".join(bad[:20]))
"""


class Activity(NamedTuple):
    """What the box does when the power goes. script: prints `done` after each step. within_s: how
    far into the next step a cut may come, in seconds outside."""

    script: str
    within_s: float
    steps: int


_LOOP = "for i in $(seq 1 999); do {} && echo done $i; done"
SET = f"{GROUND} param limits.speed_mps"
_PIP = "sudo .venv/bin/pip install -c constraints.txt --force-reinstall --no-deps"
UPGRADE = f"cd /opt/blimp && {_PIP} '.[demo,bench]'"
ACTIVITIES = {
    "boot": Activity("", 120.0, 0),
    "flight": Activity(f"{ARMED} && echo done 1; sleep 9999", 60.0, 1),
    "init": Activity(
        _LOOP.format(
            "sudo mkdir -p /etc/blimp/cuts && sudo blimp init --force --sign --new-key "
            "--config /etc/blimp/cuts/blimp.toml "
            "--airframe twin --vehicle ship$i --broker rediss://ground.local:6379/0"
        ), 30.0, 3,
    ),
    "parameters": Activity(_LOOP.format(f"{SET} 0.$((20 + i % 30))"), 30.0, 3),
    "upgrade": Activity(_LOOP.format(f"({UPGRADE} && sudo blimp install-service)"), 60.0, 1),
}  # fmt: skip


class Acked:
    """The lines that an activity has printed, read on a thread of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.strip())
                self._news.notify_all()

    @property
    def done(self) -> list[str]:
        return [line for line in self.lines if line.startswith("done")]

    def wait_for(self, steps: int, *, within_s: float) -> None:
        with self._news:
            self._news.wait_for(lambda: len(self.done) >= steps, within_s)
        assert len(self.done) >= steps, f"not begun: {self.lines[-5:]}"


class Found(NamedTuple):
    """What is wrong after a cut, in words; and what is worth a line."""

    faults: list[str]
    notes: dict[str, object]


@contextmanager
def busy(box: Box, activity: Activity) -> Iterator[Acked]:
    command = ["ssh", *box.options, "pilot@ship.local", activity.script]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:  # fmt: skip
        try:
            yield Acked(process)
        finally:
            process.kill()


def look(box: Box, name: str, acked: list[str]) -> Found:
    """Look at a ship that has booted after a cut."""
    faults: list[str] = []
    notes: dict[str, object] = {"journal": "recover" in box.serial.read_text("latin-1")}

    def expect(command: str, good: str, what: str) -> str:
        said = box.ssh(command, check=False)
        text = (said.stdout + said.stderr).strip()
        if re.search(good, text, re.DOTALL) is None:
            faults.append(f"{what}: {command}: {text[-500:]}")
        return text

    expect("sudo dmesg | grep -cE 'EXT4-fs (error|warning)'", r"^0$", "the file system")
    expect("findmnt -no OPTIONS /", r"^rw", "the file system")
    active = "systemctl is-active blimp-{broker,flight,worker,relay,recorder} | sort -u"
    waiting = f'until [ "$({active})" = active ]; do sleep 1; done'
    expect(f"timeout 90 bash -c '{waiting}'; {active}", r"^active$", "a unit")
    status = expect(
        f"{GROUND} --json status", r'"armed":\s*false', "the ship is not known to be safe"
    )
    notes["status"] = status[:400]
    expect("sudo blimp doctor --sim | grep ^error; true", r"^$", "doctor")
    for log in box.says("sudo find /var/lib/blimp/logs -name '*.mcap'").split():
        read = f"sudo blimp log info {log} >/dev/null || sudo blimp log recover {log} /tmp/$$.mcap"
        expect(f"({read}) && echo whole", r"whole$", "a log")
    expect("sudo find /etc/blimp /etc/systemd/system -type f -empty", r"^$", "an empty file")
    if name == "init" and acked:
        number = int(acked[-1].split()[1])
        expect("sudo grep ^vehicle /etc/blimp/cuts/blimp.toml", rf'"ship({number}|{number + 1})"$',
               "a configuration that was said to be written")  # fmt: skip
        expect("sudo blimp keys show /etc/blimp/cuts/signing.key && echo whole", "whole$", "a key")
    if name == "parameters" and acked:
        number = int(acked[-1].split()[1])
        kept = "|".join(f"0.{20 + one % 30}".rstrip("0") for one in (number, number + 1))
        expect(SET, rf"({kept})\b", "a parameter that was accepted")
    if name == "upgrade":
        box.write("/root/whole.py", _WHOLE)
        broken = box.ssh("sudo /opt/blimp/.venv/bin/python /root/whole.py", check=False)
        notes["half an upgrade"] = broken.stdout.split("\n")[:3]
        if acked and (broken.stdout.strip() or broken.returncode):
            notes["after a whole one"] = len(acked)
        expect(f"{UPGRADE} >/tmp/pip 2>&1 && sudo blimp install-service >/tmp/pip 2>&1 && "
               "sudo /opt/blimp/.venv/bin/python /root/whole.py || cat /tmp/pip", r"^$",
               "the same upgrade again does not cure it")  # fmt: skip
    return Found(faults, notes)


def cut_once(box: Box, world: OutsideWorld, name: str, chance: random.Random) -> dict[str, object]:
    """Do something, cut the power in it, boot, and look. The box is on before and after."""
    activity = ACTIVITIES[name]
    acked: list[str] = []
    if name == "boot":
        box.cut(chance)
        box.switch_on(world_port=world.port)
        time.sleep(chance.uniform(0.0, activity.within_s))
    else:
        with busy(box, activity) as running:
            running.wait_for(chance.randint(1, max(1, activity.steps)), within_s=3600.0)
            time.sleep(chance.uniform(0.0, activity.within_s))
            altitude_m = world.world.truth.altitude_m
            box.kill()
            acked = running.done
    unflushed, lost = box.cut(chance)
    world.restart()
    began_s = time.monotonic()
    box.boot(world_port=world.port)
    found = look(box, name, acked)
    row = {
        "activity": name, "acked": len(acked), "unflushed_blocks": unflushed, "lost_blocks": lost,
        "boot_outside_s": round(time.monotonic() - began_s), **found.notes, "faults": found.faults,
    }  # fmt: skip
    if name == "flight":
        row["altitude_m"] = round(altitude_m, 2)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.box.power_cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=ACTIVITIES, help="repeatable")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="default /dev/shm")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows of JSON are added to it")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    image = Image(options.suite)
    bad = 0
    with tempfile.TemporaryDirectory(dir=options.memory, prefix="cuts-") as name:
        box = Box(image, Path(name))
        box.put_in(image.directory / "installed.raw")
        with OutsideWorld(twin(), directory=Path(name)) as world, box:
            box.boot(world_port=world.port)
            for number in range(1, options.cuts + 1):
                activity = chance.choice(options.only or list(ACTIVITIES))
                row = {"cut": number, **cut_once(box, world, activity, chance)}
                bad += bool(row["faults"])
                print(json.dumps(row), flush=True)
                if options.out is not None:
                    with options.out.open("a") as out:
                        out.write(json.dumps(row) + "\n")
    print(f"{options.cuts} cuts, {bad} with faults; --seed {options.seed}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
