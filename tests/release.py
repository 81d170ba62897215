"""`make release`: builds sdist and wheel of HEAD, compares them with git, and tries both.

They are built in an environment of their own from a clone of HEAD, so that no file of this
directory gets into them, twice, which must give the same bytes, and installed in empty ones. They
are in `dist/` only if all of it passes.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from blimp.distribution import NAME
from tests import constraints
from tests.platforms import PASSED

PROJECT = Path(__file__).resolve().parents[1]
GIT = ("git", "-c", "safe.directory=*")
PACKAGES = ("blimp", "ground_station")
CODE = (*PACKAGES, "pyproject.toml", "setup.py")  # what rows of platforms are about
RELEASED_ON = ("bookworm", "trixie", "sid")
BUILT = {"blimp/_build.py"}
OF_THE_BUILD = re.compile(rf"PKG-INFO|setup\.cfg|{NAME.replace('-', '_')}\.egg-info/.+")
QUICK = ("-q", "-n", "2", "--dist", "worksteal", "-m", "not long and not process and not slow")
STEP_S = 1800.0
PROGRAMS = ("blimp --version", "ground --version", "python -m blimp.queue --version")


class NotReleased(Exception):
    """Why there is no release."""


def run(*words: str, cwd: Path) -> str:
    """Run a program as this user would who has nothing yet; return what it prints."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["XDG_STATE_HOME"] = str(cwd / "state")  # the demo keeps its log there
    ended = subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=STEP_S,
    )  # fmt: skip
    if ended.returncode != 0:
        raise NotReleased(f"{' '.join(words)}: status {ended.returncode}\n{ended.stdout[-4000:]}")
    return ended.stdout


def build(clone: Path, out: Path) -> tuple[Path, Path]:
    """Return sdist and wheel; the wheel is built from the sdist."""
    run(sys.executable, "-m", "build", "--outdir", str(out), str(clone), cwd=out.parent)
    ((sdist,), (wheel,)) = (list(out.glob(ending)) for ending in ("*.tar.gz", "*.whl"))
    run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel), cwd=out)
    return sdist, wheel


def compare(tracked: set[str], *, sdist: set[str], wheel: set[str]) -> None:
    """Raise NotReleased naming files that are missing in either, or that git does not know."""
    packages = {name for name in tracked if name.split("/")[0] in PACKAGES}
    for what, wanted, found in (
        ("sdist", tracked, sdist),
        ("wheel", packages, wheel),
    ):
        missing, more = sorted(wanted - found), sorted(found - wanted - BUILT)
        if missing or more or not found >= BUILT:
            raise NotReleased(f"{what}: lacks {missing}, has {more} that git does not know")


def files_of_sdist(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        names = {one.name.partition("/")[2] for one in tar.getmembers() if not one.isdir()}
    return {name for name in names if not OF_THE_BUILD.fullmatch(name)}


def files_of_wheel(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def stale(rows: dict[str, Any], repository: Path) -> list[str]:
    """Return what is wrong with rows of `make platforms`: failed, or of other code than HEAD's."""
    found = [f"no row {name}" for name in RELEASED_ON if name not in rows]
    for name, row in rows.items():
        failed = [step for step, one in row["steps"].items() if one["state"] != PASSED]
        since = f"{row['commit']}..HEAD"
        try:
            run(*GIT, "merge-base", "--is-ancestor", row["commit"], "HEAD", cwd=repository)
            changed = run(*GIT, "diff", "--name-only", since, "--", *CODE, cwd=repository).split()
        except NotReleased:
            found.append(f"{name}: its commit {row['commit'][:12]} is not in this history")
            continue
        found += [f"{name}: {', '.join(failed)} not passed"] * bool(failed)
        found += [f"{name}: {len(changed)} files changed since {row['commit'][:12]}"] * bool(
            changed
        )
    return found


def check_evidence(clone: Path, *, is_release: bool) -> None:
    """Raise NotReleased for a release whose lock or platforms are of other code; else say it."""
    rows = json.loads((clone / "benchmarks" / "results" / "platforms.json").read_text("utf-8"))
    wrong = [f"platforms: {one}; make platforms" for one in stale(rows, clone)]
    if constraints.text() != (clone / constraints.PATH.name).read_text("utf-8"):
        wrong.append("constraints.txt is not what is installed here: python -m tests.constraints")
    if wrong and is_release:
        raise NotReleased("\n  ".join(wrong))
    for one in wrong:
        print(f"  a release would be refused: {one}", flush=True)


def environment(directory: Path, *installed: str) -> Path:
    """Make an empty environment with `installed` in it; return its directory of programs."""
    run(sys.executable, "-m", "venv", str(directory), cwd=directory.parent)
    run(str(directory / "bin" / "pip"), "install", "--quiet", *installed, cwd=directory.parent)
    run(str(directory / "bin" / "pip"), "check", cwd=directory.parent)
    return directory / "bin"


def try_programs(programs: Path, *, version: str, commit: str, cwd: Path) -> None:
    for words in PROGRAMS:
        name, *rest = words.split()
        said = run(str(programs / name), *rest, cwd=cwd).strip()
        if not said.startswith(f"{version} (commit {commit[:12]}"):
            raise NotReleased(f"{words}: says {said}, not {version} of commit {commit[:12]}")
        print(f"  {words}: {said}", flush=True)


def release(out: Path, *, tests: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="blimp-release-") as name:
        work = Path(name)
        clone, built = work / "clone", work / "built"
        built.mkdir()
        run(*GIT, "clone", "--quiet", "--no-hardlinks", str(PROJECT), str(clone), cwd=work)
        commit = run(*GIT, "rev-parse", "HEAD", cwd=clone).strip()
        listed = run(*GIT, "ls-files", "-z", cwd=clone)
        print(f"build {commit[:12]}", flush=True)
        os.environ["PIP_CONSTRAINT"] = str(clone / "constraints.txt")  # what builds, too
        sdist, wheel = build(clone, built)
        again = work / "built a second time"
        again.mkdir()
        run(*GIT, "clone", "--quiet", str(PROJECT), str(again / "clone"), cwd=work)
        for one, other in zip((sdist, wheel), build(again / "clone", again), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise NotReleased(f"{one.name}: two builds of {commit[:12]} differ")
        print("  two builds in two directories are equal byte for byte", flush=True)
        version = wheel.name.split("-")[1]
        check_evidence(clone, is_release="+" not in version)
        compare(
            set(filter(None, listed.split("\0"))),
            sdist=files_of_sdist(sdist),
            wheel=files_of_wheel(wheel),
        )
        print("  both have git's files and no others, and pass twine check", flush=True)

        print("wheel, in an empty environment", flush=True)
        empty = work / "empty"
        empty.mkdir()
        programs = environment(work / "wheel", f"{wheel}[bench,demo,page]")
        try_programs(programs, version=version, commit=commit, cwd=empty)
        said = run(str(programs / "blimp"), "demo", "--mission", "hop", cwd=empty)
        print(f"  blimp demo --mission hop: {said.strip().splitlines()[-1].strip()}", flush=True)

        sbom = built / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"
        about = ("--pyproject", str(clone / "pyproject.toml"), str(programs / "python"))
        listing = ("cyclonedx_py", "environment", "--output-reproducible", "-o", str(sbom), *about)
        run(sys.executable, "-m", *listing, cwd=empty)
        print("  its packages are listed in an SBOM", flush=True)

        print("sdist, in another one", flush=True)
        run("tar", "-xf", str(sdist), cwd=work)
        source = work / sdist.name.removesuffix(".tar.gz")
        programs = environment(work / "sdist", "--editable", f"{source}[demo,dev]")
        try_programs(programs, version=version, commit=commit, cwd=empty)
        if tests:
            said = run(str(programs / "pytest"), *QUICK, cwd=source)
            print(f"  quick tests: {said.strip().splitlines()[-1]}", flush=True)

        out.mkdir(exist_ok=True)
        for path in (sdist, wheel, sbom):
            shutil.copy(path, out)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{out / path.name}: {path.stat().st_size / 1e6:.1f} MB, sha256 {digest}")
    if "+" in version:
        print(f"not for an index: HEAD has no tag v*, and {version} names a commit")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="not the tests of the sdist")
    parser.add_argument("--out", type=Path, default=PROJECT / "dist", metavar="DIRECTORY")
    options = parser.parse_args()
    changed = run(*GIT, "status", "--porcelain", cwd=PROJECT).splitlines()
    if changed:
        print(f"not in the release: {len(changed)} files that are changed and not committed")
    try:
        release(options.out.resolve(), tests=not options.no_tests)
    except NotReleased as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
