"""Cuts the power of an installed ship at random moments, and looks at what is left.

    python -m tests.box.power_cuts --cuts 30 --seed 1 [--only flight] [--out FILE] [--film FILE]
    python -m tests.box.power_cuts --record           # one run of all activities, kept
    python -m tests.box.power_cuts --states 200 --seed 1

Needs build/box/SUITE/installed.raw, which `python -m tests.box.page` leaves, and root.

Each of `--cuts` begins with the boot after the one before it, so that what a cut has harmed is not
repaired by a new card. A cut comes after a random step of an activity and a random part of the
next. A boot takes minutes, so most is tried without: `--record` keeps each write and each flush of
one run, and `--states` makes cards as cuts at random places of it would leave them.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from blimp.closing import Closing
from tests.box.expectations import ACTIVITIES, INSTALLS, Look, prepare
from tests.box.image import SUITES, Image
from tests.box.machine import Box
from tests.box.states import Recording, keep_mounts_private, mounted, record
from tests.box.world import OutsideWorld, twin
from tests.inbox import Printed

_WITHIN_S = 3600.0  # outside, for a step
_FOREVER = 9999  # steps


class Shell(Closing):
    """An activity in a ship's shell; a context manager. What it says is read on a thread."""

    def __init__(self, box: Box, script: str) -> None:
        command = ["ssh", *box.options, "pilot@ship.local", script]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self._printed = Printed(self._process.stdout)

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in list(self._printed.items)]

    def _done(self) -> int:
        return sum(line.startswith("done") for line in self.lines)

    def wait_for(self, steps: int) -> None:
        self._printed.wait_for(lambda: self._done() >= steps, within_s=_WITHIN_S)
        assert self._done() >= steps, f"not done: {self.lines[-5:]}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._printed.join()


class Film(Closing):
    """Writes the box's console, and how the ship flies meanwhile, to `path`; a context manager.

    As an asciicast: https://docs.asciinema.org/manual/asciicast/v2/. Its time is the time outside.
    """

    def __init__(self, path: Path, box: Box, world: OutsideWorld) -> None:
        self._box, self._world = box, world
        box.serial.touch()
        self._began_s = time.monotonic()
        self._ended = threading.Event()
        self._file = path.open("w")
        head = {"version": 2, "width": 110, "height": 32, "idle_time_limit": 2.0}
        self._file.write(json.dumps(head) + "\n")
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        shown, before = 0, ""
        while not self._ended.wait(0.1):
            console = self._box.serial.read_bytes()
            if len(console) < shown:
                shown = 0
                self._say("the power is cut, and comes again")
            self._show(console[shown:].decode(errors="replace"))
            shown = len(console)
            if (state := self._state()) != before:
                self._say(state)
            before = state

    def _state(self) -> str:
        if self._world.clock.now_s() == 0.0:
            return "the ship's computer has asked no chip yet"
        world = self._world.world
        motors = "turn" if any(world.electronics.throttles()) else "at rest"
        return f"seen from outside: {abs(world.truth.altitude_m):.1f} m, motors {motors}"

    def _say(self, text: str) -> None:
        self._show(f"\r\n\x1b[7m {text} \x1b[0m\r\n")

    def _show(self, text: str) -> None:
        if text:
            at_s = round(time.monotonic() - self._began_s, 2)
            self._file.write(json.dumps([at_s, "o", text]) + "\n")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._file.close()


def cut_once(box: Box, world: OutsideWorld, name: str, chance: random.Random) -> dict[str, object]:
    """Do something, cut the power in it, boot, and look. The box is on before and after."""
    activity = ACTIVITIES[name]
    said: list[str] = []
    if name == "boot":
        box.cut(chance)
        box.switch_on(world_port=world.port)
        time.sleep(chance.uniform(0.0, activity.within_s))
    else:
        with Shell(box, f"N={_FOREVER}; {activity.script}") as shell:
            if name not in INSTALLS:  # in these the first step is the long one
                shell.wait_for(chance.randint(1, 3))
            time.sleep(chance.uniform(0.0, activity.within_s))
            altitude_m = world.world.truth.altitude_m
            box.kill()
        said = shell.lines
    unflushed, lost = box.cut(chance)
    world.restart()
    began_s = time.monotonic()
    box.boot(world_port=world.port)
    boot_s = round(time.monotonic() - began_s)
    look = Look(lambda command: _ask(box, command), said)
    box.log_in()
    look.program()
    look.running()
    look.files()
    look.queue()
    row = {
        "activity": name, "steps": sum(line.startswith("done") for line in said),
        "unflushed_blocks": unflushed, "lost_blocks": lost, "boot_outside_s": boot_s,
        **look.found.notes, "faults": look.found.faults,
    }  # fmt: skip
    if name == "flight":
        row["altitude_m"] = round(altitude_m, 2)
    return row


def _ask(box: Box, command: str) -> str:
    ended = box.ssh(command, check=False)
    return ended.stdout + ended.stderr


def cut_again_and_again(
    box: Box, world: OutsideWorld, names: list[str], count: int, chance: random.Random
) -> Iterator[dict[str, object]]:
    box.boot(world_port=world.port)
    for number in range(count):
        name = names[number % len(names)]
        yield {"cut": number + 1, **cut_once(box, world, name, chance)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.box.power_cuts", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cuts", type=int, metavar="N", help="with a boot each")
    what.add_argument("--record", action="store_true")
    what.add_argument("--states", type=int, metavar="N", help="of the recording, without a boot")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=ACTIVITIES, help="repeatable")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="default /dev/shm")
    parser.add_argument("--film", type=Path, metavar="FILE", help="an asciicast of the cuts")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows of JSON are added to it")
    options = parser.parse_args()
    image = Image(options.suite)
    names = options.only or list(ACTIVITIES)
    base, events = image.directory / "recording.raw", image.directory / "recording.msgpack"
    needed = image.directory / "installed.raw" if options.states is None else events
    if not needed.exists():
        first = "tests.box.page" if options.states is None else "tests.box.power_cuts --record"
        parser.error(f"no {needed}: run first:  python -m {first}")
    keep_mounts_private()
    with tempfile.TemporaryDirectory(dir=options.memory, prefix="cuts-") as name:
        directory = Path(name)
        if options.states is not None:
            recording = msgspec.msgpack.decode(events.read_bytes(), type=Recording)
            moments = recording.moments(names, options.states, options.seed)
            return report(recording.cuts(base, directory, moments, options.seed), options.out)
        box = Box(image, directory)
        box.put_in(needed)
        with mounted(box.disk, directory / "root") as root:
            prepare(root)
        if options.record:
            subprocess.run(["cp", "--reflink=auto", box.disk, base], check=True)
            recording = record(box.disk, directory, [name for name in names if name != "boot"])
            events.write_bytes(msgspec.msgpack.encode(recording))
            return 0
        with ExitStack() as power:
            world = power.enter_context(OutsideWorld(twin(), directory=directory))
            power.enter_context(box)
            if options.film is not None:
                power.enter_context(Film(options.film, box, world))
            chance = random.Random(options.seed)
            return report(cut_again_and_again(box, world, names, options.cuts, chance), options.out)


def report(rows: Iterator[dict[str, object]], out: Path | None) -> int:
    """Print each row as it comes; return 1 if one of them has faults."""
    count = bad = 0
    for row in rows:
        count += 1
        bad += bool(row["faults"])
        line = json.dumps(row)
        print(line, flush=True)
        if out is not None:
            with out.open("a") as file:
                file.write(line + "\n")
    print(f"{count} cuts, {bad} with faults")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
