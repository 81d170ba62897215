"""`make mutants`: breaks a line, runs the tests of its part, and says what no test noticed.

Each row of the tables beside this file is tried in a copy of the checkout. The tests that the rows
name must pass there before anything is broken. mutmut and cosmic-ray were not chosen: they pick
the lines by themselves, tens of thousands here, while these are chosen for the promises they guard.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.table import PROJECT, Mutant, rows

# Chosen: a mutant may make a test wait for ever, which counts as noticed.
TEST_S, RUN_S = 60.0, 600.0
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
PASSED, NOT_PASSED, INTERRUPTED = 0, 1, 2  # pytest.ExitCode


def copy_to(root: Path) -> None:
    """Copy what git knows of this checkout, as it stands here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, root / name)


def run_tests(root: Path, targets: Iterable[str], *more: str, **variables: str) -> tuple[int, str]:
    """Run pytest in a copy; return its exit code, -1 if it took too long, and what it printed."""
    targets = tuple(targets)
    marked = () if any("::" in one for one in targets) else ("-m", "not long")
    words = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "--timeout", str(TEST_S), *marked, *more, *targets,
    ]  # fmt: skip
    # The copy's packages stand before those that are installed, in children too.
    environment = os.environ | {"PYTHONPATH": str(root)} | variables
    with subprocess.Popen(
        words, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as running:  # fmt: skip
        try:
            printed, _ = running.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the processes of its tests
            return -1, ""
    return running.returncode, printed


def try_one(mutant: Mutant, copies: "SimpleQueue[Path]") -> str:
    """Return what noticed this mutant; "" if nothing did. Raises ValueError if the row is wrong."""
    root = copies.get()
    path = root / mutant.file
    stamp = path.stat() if path.is_file() else None
    try:
        text = mutant.break_in(root)
        try:
            # Python knows bytecode by time and size of its source, which two mutants may share.
            for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
                stale.unlink()
            code, printed = run_tests(root, mutant.targets(), "-x", PYTHONDONTWRITEBYTECODE="1")
        finally:
            path.write_text(text)
            if stamp is not None:
                os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    finally:
        copies.put(root)
    if code == -1:
        return f"still running after {RUN_S:.0f} s"
    if code in (NOT_PASSED, INTERRUPTED):
        found = FAILED.search(printed)
        return found[1] if found else "an error"
    if code != PASSED:
        raise ValueError(f"{mutant.file}: pytest ended with {code}: {printed[-500:]}")
    return ""


def tried(mutant: Mutant, copies: "SimpleQueue[Path]") -> tuple[Mutant, bool]:
    """Try one mutant and print its line; return whether a test noticed."""
    began = time.monotonic()
    try:
        noticed = try_one(mutant, copies)
        said = f"noticed by {noticed}" if noticed else "SURVIVED"
    except (ValueError, SyntaxError) as error:
        noticed, said = "", f"NO MUTANT: {error}"
    print(f"{time.monotonic() - began:5.1f} s  {mutant.promise}: {said}", flush=True)
    return mutant, bool(noticed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose promise or file has this text")
    parser.add_argument("--part", choices=sorted(rows()), help="rows of one table")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    given = parser.parse_args(arguments)
    chosen = [
        mutant
        for part, mutants in rows().items()
        for mutant in mutants
        if given.part in (None, part) and given.only in f"{mutant.promise} {mutant.file}"
    ]
    if not chosen:
        parser.error(f"no row has {given.only!r}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        Path(directory).chmod(0o755)  # a test imports as another user
        first = Path(directory) / "0"
        copy_to(first)
        targets = sorted({target for mutant in chosen for target in mutant.targets()})
        code, printed = run_tests(first, targets, "-n", str(given.jobs), "--dist", "worksteal")
        if code != PASSED:
            print(f"{printed[-4000:]}\nNothing was broken yet, and these tests do not pass.")
            return 1
        copies: SimpleQueue[Path] = SimpleQueue()
        copies.put(first)
        for number in range(1, given.jobs):
            copies.put(Path(shutil.copytree(first, Path(directory) / str(number))))
        with ThreadPoolExecutor(given.jobs) as pool:
            ended = list(pool.map(lambda mutant: tried(mutant, copies), chosen))
    survived = [mutant for mutant, noticed in ended if not noticed]
    print(f"{len(ended)} mutants, {len(survived)} survived")
    for mutant in survived:
        print(f"  {mutant.file}: {mutant.promise}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
