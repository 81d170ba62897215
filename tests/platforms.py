"""The README's two commands, and the wheel alone, on every Debian that a ship or a laptop may have.

Each Debian is a root that debootstrap makes once, in a cache. In it an ordinary user, who has no
more than the packages below, gets a fresh clone of HEAD at a path with a space and an umlaut.
What runs there has its own mounts and processes, which end with this program.

    make platforms                          # needs root, debootstrap, qemu-user-static; an hour
    make platforms PLATFORMS="--quick"      # demo hop and quick tests; minutes after the first time
    make platforms PLATFORMS="--only sid"   # one row
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

PROJECT = Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "benchmarks" / "results" / "platforms.json"
MIRROR = "http://deb.debian.org/debian"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
# What the README asks for, what pip builds with where there is no wheel, and what tests call.
PACKAGES = (
    "ca-certificates", "gcc", "git", "iproute2", "libc6-dev", "make", "openssl", "procps",
    "python3", "python3-dev", "python3-venv",
)  # fmt: skip
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # Debian's name for what the kernel calls it
USER, UID = "pilot", 1000
HOME = Path("/home") / USER
CLONE = HOME / "Größe und Luft" / "blimp"
GIT = ("git", "-c", "safe.directory=*")  # root reads the clone of another user
STEP_S = 7200.0  # after which a step has failed: `make test` takes a tenth of it on two processors
PASSED, FAILED, NOT_RUN = "passed", "FAILED", "NOT RUN"

# Own mounts and processes; all end with the shell, which ends with this program. $1: the root,
# $2: the user's home, $3: its /tmp, $4: what pip keeps from run to run, then directories to be seen
# at the same path, `--`, a command.
INSIDE = """
set -e
mount --make-rprivate /
root=$1 home=$2 tmp=$3 pip=$4
shift 4
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
mount --bind "$home" "$root/home/pilot"
mount --bind "$tmp" "$root/tmp"
mount --bind "$pip" "$root/home/pilot/.cache/pip"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind -o ro "$1" "$root$1"
  shift
done
shift
exec chroot --userspec=pilot:pilot "$root" "$@"
"""

WHEEL = r"""
mkdir -p ~/"wheel alone" && cd ~/"wheel alone"
python3 -m venv venv
venv/bin/pip wheel --quiet --no-deps --wheel-dir . "$1"
venv/bin/pip install --quiet "$(echo blimp_autopilot-*.whl)[demo,page]"
venv/bin/blimp --help
venv/bin/blimp demo --mission hop
"""
HOP = 'make demo DEMO="--mission hop"'
PYTEST = "make .venv/dev.installed && .venv/bin/pytest -q -n 2 --dist worksteal"
QUICK_TESTS = f'{PYTEST} -m "not long and not process and not slow"'
LOCKSTEP = f"{PYTEST} tests/ship/test_lockstep.py"
# Qemu's user mode answers ENOSYS to an ioctl that it does not know, where a kernel says ENOTTY, and
# leaves open the descriptors that a message brings without being asked for.
NOT_EMULATED = (
    "tests/sim/test_seam.py::test_open_files_work_in_the_next_visit_and_not_between",
    "tests/sim/test_seam.py::test_what_is_no_device_passes_through",
    "tests/link/test_mailbox.py::"
    "test_whatever_is_passed_to_the_flight_process_it_keeps_only_a_socket_it_can_answer",
)
ALONE = {
    "wheel alone": f"bash -euc {shlex.quote(WHEEL)} wheel {shlex.quote(str(CLONE))}",
    "pip check": '.venv/bin/pip check && ~/"wheel alone"/venv/bin/pip check',
}
# Name and command in the clone.
WHOLE = {"make demo": "make demo", "make test": "make test", **ALONE}
QUICK = {"demo hop": HOP, "quick tests": QUICK_TESTS, **ALONE}
EMULATED = {
    "lockstep": LOCKSTEP,
    "quick tests": " ".join([QUICK_TESTS, *(f"--deselect {one}" for one in NOT_EMULATED)]),
    "demo hop": HOP,
    **ALONE,
}

# A CPython without its interpreter lock, which Debian does not package. FREE: $1: the root, then a
# command. FREE_INSIDE: $1: the mirror, $2: the suite, $3: the source package. Debian's patches move
# site-packages, and take pip out: they are left out.
# A mirror's index may name files that the mirror does not have. Then the first revision of the
# newest earlier release is taken, a name that no index gives. What the index names, apt checks
# against the index and Debian's signature of it. Of an earlier release, dpkg-source checks the
# files against the .dsc, and that a Debian developer signed the .dsc; that nothing newer cures a
# fault of it is not checked.
FREE = """
set -eu
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
cp /etc/resolv.conf "$1/etc/resolv.conf"
exec chroot "$@"
"""
FREE_INSIDE = r"""
set -eux
export DEBIAN_FRONTEND=noninteractive
get="apt-get -qq -y -o Acquire::Check-Valid-Until=false"
echo "deb-src $1 $2 main" > /etc/apt/sources.list.d/source.list
$get update
$get install --no-install-recommends dpkg-dev redis-server libpq5 \
  libbz2-dev libffi-dev liblzma-dev libsqlite3-dev libssl-dev zlib1g-dev
mkdir -p /usr/src/free
cd /usr/src/free
verify=
if ! $get source --download-only "$3"; then
  rm -f ./*
  fetch() { /usr/lib/apt/apt-helper download-file "$1" "${1##*/}"; }
  pool=$1/pool/main/p/$3 minor=${3#python}
  patch=$(apt-cache showsrc --only-source "$3" | sed -n "s/^Version: $minor\.\([0-9]*\).*/\1/p" |
    sort -n | tail -n 1)
  until fetch "$pool/${3}_$minor.$((patch -= 1))-1.dsc"; do
    [ "$patch" -gt 0 ]
  done
  for file in $(sed -n '/^Files:/,/^$/s/^ [0-9a-f]* [0-9]* //p' ./*.dsc); do
    fetch "$pool/$file"
  done
  $get install --no-install-recommends debian-keyring
  verify=--require-valid-signature
fi
dpkg-source $verify --skip-patches --extract ./*.dsc source
cd source
./configure --disable-gil --disable-test-modules "--prefix=/opt/${3}t"
make -j"$(nproc)"
make install
rm -rf /usr/src/free
"""
# hiredis turns the lock on again: see docs/decisions/0049-free-threading.md. Under the lock-free
# collector a test's unclosed client may be found later, in another test.
FREE_TESTS = """
PYTHON_GIL=0 free/bin/pytest -q -n 2 --dist worksteal \
  -W default::pytest.PytestUnraisableExceptionWarning \
  tests/queue tests/tasks tests/contracts/test_brokers.py
"""
FREE_INSTALL = """
/opt/python{python}t/bin/python{python}t -m venv free
free/bin/pip install --quiet '.[metrics,trace]' 'SQLAlchemy>=2.1,<2.2' psycopg \\
  hypothesis coverage pytest pytest-timeout pytest-xdist
"""
FREE_STEPS = {
    "install": FREE_INSTALL,
    "who turns it on": "PYTHON_GIL=0 free/bin/pytest -q tests/queue/worker/test_interpreter.py",
    "queue's tests": FREE_TESTS,
    "in parallel": "PYTHON_GIL=0 free/bin/python -m benchmarks.queue.threads --least 1.7",
    "pip check": "free/bin/pip check",
}


class CannotRun(Exception):
    """Why there are no roots on this machine."""


@dataclass(frozen=True, kw_only=True)
class Step:
    state: str
    took_s: float
    last_line: str


@dataclass(frozen=True, kw_only=True)
class Platform:
    """One row of the table. arch: Debian's name of it; None is this machine's own."""

    suite: str
    python: str  # Debian's in this suite
    arch: str | None = None
    is_free: bool = False  # of the interpreter lock, and built from Debian's source

    @property
    def is_emulated(self) -> bool:
        return self.arch not in (None, MACHINES.get(os.uname().machine))

    def steps(self, *, is_quick: bool) -> dict[str, str]:
        if self.is_free:
            return {name: step.format(python=self.python) for name, step in FREE_STEPS.items()}
        if self.is_emulated:
            return EMULATED
        return QUICK if is_quick else WHOLE


PLATFORMS = {
    "bookworm": Platform(suite="bookworm", python="3.11"),
    "trixie": Platform(suite="trixie", python="3.13"),
    "sid": Platform(suite="sid", python="3.14"),
    "sid-free": Platform(suite="sid", python="3.14", is_free=True),
    "trixie-arm64": Platform(suite="trixie", python="3.13", arch="arm64"),
}


@dataclass(frozen=True, kw_only=True)
class Root:
    """The Debian of a platform on the disk."""

    platform: Platform
    path: Path

    def make(self, *, mirror: str, fresh: bool) -> None:
        """Make it, unless it is there. Raises CannotRun."""
        suite, arch = self.platform.suite, self.platform.arch
        if self.platform.is_emulated:
            emulate(str(arch))
        if self.path.exists() and not fresh:
            return
        part = self.path.with_suffix(".part")
        for old in (part, self.path):
            shutil.rmtree(old, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        # Debootstrap mounts /proc in the root; what it leaves behind ends with its own mounts.
        command = [
            "unshare",
            "--mount",
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
        ]
        command += [f"--arch={arch}"] if arch else []
        log = part.with_suffix(".log")
        with log.open("wb") as output:
            done = subprocess.run(
                [*command, suite, str(part), mirror],
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise CannotRun(f"debootstrap of {suite} from {mirror} failed: see {log}")
        add_user = ["useradd", "--uid", str(UID), "--create-home", "--shell", "/bin/bash", USER]
        subprocess.run(["chroot", str(part), *add_user], check=True)
        if self.platform.is_free:
            self._build(part, mirror=mirror, log=log)
        part.rename(self.path)

    def _build(self, part: Path, *, mirror: str, log: Path) -> None:
        """Build an interpreter without its lock. Raises CannotRun."""
        package = f"python{self.platform.python}"
        inside = ["bash", "-c", FREE_INSIDE, "build", mirror, self.platform.suite, package]
        command = ["unshare", "--mount", "bash", "-c", FREE, "root", str(part), *inside]
        with log.open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise CannotRun(
                f"{package} without its lock cannot be built from its source: see {log}"
            )

    def configure(self) -> list[str]:
        """Let pip find what it finds on this machine; return the directories it must see."""
        for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
            if Path(name).exists():
                shutil.copy(name, f"{self.path}{name}")
        options = pip_options()
        lines = [f"{name} = {value}" for name, value in options.items()]
        (self.path / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        directories = []
        for word in " ".join(options.values()).split():
            path = Path(unquote(urlsplit(word).path) if word.startswith("file:") else word)
            if path.is_absolute() and path.is_dir():  # an index's files lie beside its pages
                directories.append(str(path.parent if path.name == "simple" else path))
            elif path.is_absolute() and path.is_file():
                (self.path / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.path / path.relative_to("/"))
        return directories

    @contextmanager
    def clone(self) -> Iterator["Clone"]:
        """Yield a user's home with a clone of HEAD in it; it is removed afterwards."""
        directories = self.configure()
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=f"{self.path.name}-") as name:
            home, tmp = Path(name, "home"), Path(name, "tmp")
            pip = self.path.with_suffix(".pip")
            for directory in (tmp, pip, home / ".cache" / "pip"):
                directory.mkdir(parents=True, exist_ok=True)
            tmp.chmod(0o1777)
            source = [*GIT, "clone", "--quiet", "--no-hardlinks", str(PROJECT)]
            subprocess.run([*source, str(home / CLONE.relative_to(HOME))], check=True)
            subprocess.run(
                ["chown", "--recursive", f"{UID}:{UID}", str(home), str(pip)], check=True
            )
            yield Clone(root=self, places=(self.path, home, tmp, pip), directories=directories)


@dataclass(frozen=True, kw_only=True)
class Clone:
    root: Root
    places: tuple[Path, Path, Path, Path]
    directories: list[str]

    def run(self, command: str, *, log: Path) -> Step:
        """Run `command` as the user, in the clone."""
        environment = {"HOME": str(HOME), "USER": USER, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        assignments = [f"{name}={value}" for name, value in environment.items()]
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork"]
        paths = [str(path) for path in self.places]
        inside = ["bash", "-c", INSIDE, "inside", *paths, *self.directories, "--"]
        shell = [
            "env",
            "-i",
            *assignments,
            "bash",
            "-c",
            f"cd {shlex.quote(str(CLONE))}\n{command}",
        ]
        began_s = time.monotonic()
        with log.open("w+", encoding="utf-8", errors="replace") as output:
            try:
                ended = subprocess.run(
                    [*alone, "--kill-child", *inside, *shell],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=STEP_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                ended = -1
                output.write(f"\nstill running after {STEP_S:g} s\n")
            output.seek(0)
            lines = [line.strip() for line in output if line.strip()]
        return Step(
            state=PASSED if ended == 0 else FAILED,
            took_s=round(time.monotonic() - began_s, 1),
            last_line=lines[-1][:200] if lines else "",
        )


def pip_options() -> dict[str, str]:
    """Return the options that pip has here; those of the environment win, as with pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(:env:|global)\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
    by_place = sorted(found, key=lambda one: one[0] == ":env:")
    return {name: value.replace("\\n", " ") for _, name, value in by_place}


def check_possible() -> None:
    """Raise CannotRun saying what is missing."""
    for program, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            raise CannotRun(f"no {program} here; try: apt-get install {package}")
    if os.geteuid() != 0:
        raise CannotRun("debootstrap and chroot need root; try: sudo make platforms")
    alone = ["unshare", "--mount", "--pid", "--fork", "mount", "--make-rprivate", "/"]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"no mounts of its own here: {done.stderr.strip()}")


def emulate(arch: str) -> None:
    """Have the kernel run programs of `arch` by qemu, in a root too. Raises CannotRun."""
    machine = {debian: machine for machine, debian in MACHINES.items()}.get(arch, arch)
    interpreter = f"qemu-{machine}"
    if not (BINFMT / "register").exists():
        command = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRun(f"no binfmt_misc to emulate {arch} by: {done.stderr.strip()}")
    if (BINFMT / interpreter).exists():
        return
    rule = Path("/usr/lib/binfmt.d", f"{interpreter}.conf")  # as systemd would register it
    if not rule.exists():
        raise CannotRun(f"no {interpreter} here; try: apt-get install qemu-user-static")
    try:
        (BINFMT / "register").write_text(rule.read_text().strip())
    except OSError as error:
        raise CannotRun(f"the kernel does not take {rule}: {error}") from None


def run_steps(root: Root, *, is_quick: bool, logs: Path) -> Iterator[tuple[str, Step]]:
    logs.mkdir(parents=True, exist_ok=True)
    with root.clone() as clone:
        command = f"python3 --version | grep -F ' {root.platform.python}.' && uname -m"
        yield "python", clone.run(command, log=logs / "python.log")
        for name, command in root.platform.steps(is_quick=is_quick).items():
            log = logs / f"{name.replace(' ', '-')}.log"
            yield name, clone.run(command, log=log)


def described(*command: str) -> str:
    return subprocess.run(
        [*GIT, "-C", str(PROJECT), *command], capture_output=True, text=True, check=True
    ).stdout.strip()


def keep(path: Path, table: dict[str, dict[str, Step]], *, is_quick: bool) -> None:
    """Put these rows into the file; rows of platforms that did not run stay as they are."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    for name, steps in table.items():
        kept[name] = {
            "command": f"python -m tests.platforms{' --quick' * is_quick} --only {name}",
            "commit": described("rev-parse", "HEAD"),
            "steps": {step: asdict(one) for step, one in steps.items()},
        }
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="demo hop, and quick tests only")
    parser.add_argument("--only", action="append", choices=PLATFORMS, help="repeatable")
    parser.add_argument("--fresh", action="store_true", help="make the roots again")
    parser.add_argument("--mirror", default=MIRROR, help=f"default {MIRROR}")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(home).expanduser() / "blimp" / "platforms"
    parser.add_argument("--cache", type=Path, default=cache, help=f"default {cache}")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    cache = options.cache.resolve()
    try:
        check_possible()
    except CannotRun as error:
        print(f"platforms: {NOT_RUN}: {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    if changed := described("status", "--porcelain", "--untracked-files=no"):
        print(f"not in the clones: {len(changed.splitlines())} changed files, not committed")
    table: dict[str, dict[str, Step]] = {}
    for name in options.only or PLATFORMS:
        root = Root(platform=PLATFORMS[name], path=cache / name)
        steps = table.setdefault(name, {})
        try:
            root.make(mirror=options.mirror, fresh=options.fresh)
        except CannotRun as error:
            steps["root"] = Step(state=NOT_RUN, took_s=0.0, last_line=str(error))
            print(f"{name:16} {'root':12} {NOT_RUN}: {error}", flush=True)
            continue
        logs = cache / "logs" / name
        for step, found in run_steps(root, is_quick=options.quick, logs=logs):
            steps[step] = found
            print(
                f"{name:16} {step:12} {found.state:8} {found.took_s:7.1f} s  {found.last_line}",
                flush=True,
            )
            if found.state == FAILED:
                print(f"{'':16} {'':12} see {logs}", flush=True)
    keep(options.out, table, is_quick=options.quick)
    states = {one.state for steps in table.values() for one in steps.values()}
    return int(FAILED in states or (NOT_RUN in states and bool(os.environ.get("CI"))))


if __name__ == "__main__":
    sys.exit(main())
