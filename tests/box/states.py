"""Cards as a power cut would leave them: made of one recorded run, and looked at without a boot.

As CrashMonkey (OSDI 2018) and dm-log-writes do: everything up to the last flush before the cut is
there, and of the blocks written after it a random part, by `Flash.cut`. The file system is mounted
on this machine, whose kernel replays its journal; the ship's own programs run in a chroot, those of
its units as their `ExecStart` has them, and so does the recorded ship, on a simulated world.
"""

import ctypes
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from blimp.link.paths import BROKER_DIR, socket_path
from blimp.service.stack.broker import answers
from tests.box.card import Card, Event, Flash
from tests.box.expectations import ACTIVITIES, GROUND, INSTALLS, Look
from tests.repeating import until

_CLONE_NEWNS = 0x20000  # sched.h
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
    "LANG": "C.UTF-8",
}  # fmt: skip
_UNIT = r"""
unit=$(cat /etc/systemd/system/$0 $(find /etc/systemd/system/$0.d -type f 2>/dev/null))
words() { echo "$unit" | sed -n "s/^$1=-\?//p"; }
export STATE_DIRECTORY=/var/lib/blimp $(words Environment)
eval "$(words ExecStartPre)"; eval exec "$(words ExecStart | tail -1)"
"""
_WORLD = "exec blimp sim --airframe /etc/blimp/mine.toml --runtime-dir /run/blimp"


class Recording(msgspec.Struct):
    """What a card received in one run, in order."""

    events: list[Event]

    def moments(self, names: list[str], count: int, seed: int) -> list[tuple[int, str]]:
        """Return different random places in it, in order, as many of each activity."""
        begins = {
            event.removeprefix("activity "): number
            for number, event in enumerate(self.events)
            if isinstance(event, str) and event.startswith("activity ")
        }
        ends = dict(zip(begins, [*list(begins.values())[1:], len(self.events)], strict=True))
        chance, chosen = random.Random(seed), [name for name in names if name in begins]
        moments = list[tuple[int, str]]()
        for number, name in enumerate(chosen):
            places = range(begins[name] + 1, ends[name] + 1)
            share = min(len(places), len(range(number, count, len(chosen))))
            moments += [(place, name) for place in chance.sample(places, share)]
        return sorted(moments)

    def cuts(
        self, base: Path, directory: Path, moments: list[tuple[int, str]], seed: int
    ) -> Iterator[dict[str, object]]:
        """Look at a card after a cut at each moment. base: the card before the run."""
        with Flash(base) as untouched, untouched.copy(directory / "before.raw") as flash:
            at, said = 0, list[str]()
            for moment, name in moments:
                for event in self.events[at:moment]:
                    if isinstance(event, str):
                        said.append(event)
                    elif event is None:
                        flash.flush()
                    else:
                        flash.write(*event)
                at = moment
                state = directory / "state.raw"
                with flash.copy(state) as cut:
                    unflushed, lost = cut.cut(random.Random(f"{seed} {moment}"))
                look = _look(state, directory / "root", said)
                yield {
                    "state": moment, "activity": name, "unflushed_blocks": unflushed,
                    "lost_blocks": lost, **look.found.notes, "faults": look.found.faults,
                }  # fmt: skip


def _look(state: Path, root: Path, said: list[str]) -> Look:
    with mounted(state, root):
        pass  # the kernel replays the journal
    checked = subprocess.run(["e2fsck", "-fn", state], capture_output=True, text=True, check=False)
    with mounted(state, root):
        look = Look(lambda command: _ask(root, command), said)
        if checked.returncode:
            look.found.faults.append(f"the file system: {checked.stdout[-500:]}")
        look.program()
        look.files()
        with _broker(root) as log:
            look.queue()
        if mended := log.read_text().split("blimp: broker: ")[1:]:
            look.found.notes["broker"] = mended[0].split("\n")[0]
    return look


def record(disk: Path, directory: Path, names: list[str]) -> Recording:
    """Do one activity after the other on the card `disk`, whose ship runs for them."""
    events: list[Event] = []
    file, root = directory / "card", directory / "root"
    file.touch()
    with ExitStack() as power:
        card = power.enter_context(Card(disk, directory / "card.sock", events=events))
        export = [
            "--blockdev", f"nbd,node-name=card,server.type=unix,server.path={card.socket_path}",
            "--export", f"fuse,id=file,node-name=card,mountpoint={file},writable=on",
        ]  # fmt: skip
        daemon = power.enter_context(subprocess.Popen(["qemu-storage-daemon", *export]))
        power.callback(daemon.terminate)
        until(lambda: file.stat().st_size, "the card is no file")
        power.enter_context(mounted(file, root))
        with ExitStack() as ship:
            ship.enter_context(_beside(root, "world", _WORLD))
            ship.enter_context(_broker(root))
            for unit in ("flight", "recorder", "worker"):
                ship.enter_context(_beside(root, f"blimp-{unit}.service"))
            until(lambda: '"armed"' in _ask(root, f"{GROUND} --json status"), "no ship")
            for name in names:
                if name in INSTALLS:
                    ship.close()
                events.append(f"activity {name}")
                _do(root, name, events)
    return Recording(events)


# --- a card that no computer has -----------------------------------------------------------------


def keep_mounts_private() -> None:
    """Nobody else sees what this process mounts: a namespace made meanwhile would keep it."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNS):
        raise PermissionError("no mount namespace: run it as root")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextmanager
def mounted(disk: Path, root: Path) -> Iterator[Path]:
    """Mount the file system of `disk` at `root`, with what a chroot needs."""
    root.mkdir(exist_ok=True)
    mounts = (
        f"loop {disk} {root}", f"rw -t proc proc {root}/proc", f"rw -t tmpfs run {root}/run",
        f"ptmxmode=666 -t devpts pts {root}/dev/pts",
        f"bind /etc/resolv.conf {root}/etc/resolv.conf",  # for pip
    )  # fmt: skip
    try:
        for one in mounts:
            subprocess.run(["mount", "-o", *one.split()], check=True)
        yield root
    finally:
        subprocess.run(["umount", "--recursive", root], check=True)


def _shell(root: Path, command: str) -> "subprocess.Popen[str]":
    """Type a line at root's shell of the card: `sudo` is not needed, and asks for the host."""
    typed = re.sub(r"\bsudo ", "", command)
    return subprocess.Popen(
        ["nice", "chroot", root, "bash", "-c", typed], env=_ENVIRONMENT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _ask(root: Path, command: str) -> str:
    with _shell(root, command) as shell:
        return shell.communicate()[0]


def _do(root: Path, name: str, events: list[Event]) -> None:
    """Raises AssertionError with what was said instead if not all steps were done."""
    activity = ACTIVITIES[name]
    said = list[str]()
    with _shell(root, f"N={activity.steps}; {activity.script}") as shell:
        assert shell.stdout is not None
        for line in shell.stdout:
            said.append(line.strip())
            events.append(said[-1])
    done = sum(line.startswith("done ") for line in said)
    assert done == activity.steps, f"{name}: {done} of {activity.steps}: {said[-5:]}"
    print(f"{name}: {done} steps, {len(events)} events by now", flush=True)


@contextmanager
def _beside(root: Path, name: str, script: str = _UNIT) -> Iterator[Path]:
    """Run a unit's program, or a script, as the ship's user. Yields the file with what it says."""
    log = root.with_name(f"{name}.log")
    as_user = ["setpriv", "--reuid=blimp", "--regid=blimp", "--init-groups"]
    directory = "install -d -o blimp -g blimp /run/blimp; exec " + " ".join(as_user)
    with log.open("w") as out:
        process = subprocess.Popen(
            ["chroot", root, "sh", "-c", f'{directory} bash -c "$@"', "sh", script, name],
            env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _broker(root: Path) -> Iterator[Path]:
    with _beside(root, "blimp-broker.service") as log:
        socket = root / socket_path(BROKER_DIR).relative_to("/")
        until(lambda: answers(socket), "no broker", within_s=120.0)
        yield log
