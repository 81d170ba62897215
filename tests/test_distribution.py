"""Versions: of a wheel, of a checkout however it was cloned, and the command that adds an extra."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import constraints, release
from tests.forked import ran

ROOT = Path(__file__).parents[1]
SHOWN = ("py", "js", "html", "toml", "service")
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=x"]
without_git = pytest.mark.skipif(shutil.which("git") is None, reason="NOT RUN: no git here")


def git(directory: Path, *words: str) -> str:
    command = [*GIT, "-C", str(directory), *words]
    return ran(command, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository of two commits with what knows the version, without a tag."""
    directory = tmp_path / "a clone"
    (directory / "blimp").mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", ".git_archival.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    for name in ("__init__.py", "distribution.py", "errors.py"):
        shutil.copy(ROOT / "blimp" / name, directory / "blimp")
    (directory / ".gitattributes").write_text(".git_archival.txt export-subst\n")
    git(directory, "init", "--quiet")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "first")
    git(directory, "commit", "--quiet", "--message", "second", "--allow-empty")
    return directory


def python(directory: Path, code: str, **environment: str) -> str:
    """Run code in an interpreter that imports `blimp` from `directory`."""
    return ran(
        [sys.executable, "-c", code],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(directory), **environment},
        check=True,
        timeout=60,
    ).stdout.strip()


def version(directory: Path) -> str:
    return python(directory, "import blimp; print(blimp.__version__)")


def of_scm(directory: Path) -> str:
    """Return what a build here would call itself."""
    code = "import sys, setuptools_scm as s; print(s._get_version(s.Configuration.from_file("
    code += "sys.argv[1] + '/pyproject.toml'), force_write_version_files=False))"
    return ran(
        [sys.executable, "-W", "ignore", "-c", code, str(directory)], check=True, timeout=60
    ).stdout.strip()


@without_git
def test_a_checkout_counts_commits_as_a_build_of_it_does(checkout: Path) -> None:
    short = git(checkout, "rev-parse", "HEAD")[:9]
    assert version(checkout) == of_scm(checkout) == f"0.1.0.dev2+g{short}"
    git(checkout, "tag", "a-name-that-is-no-version-1")
    git(checkout, "tag", "v0.9.0")
    assert version(checkout) == of_scm(checkout) == "0.9.0"
    git(checkout, "commit", "--quiet", "--message", "third", "--allow-empty")
    short = git(checkout, "rev-parse", "HEAD")[:9]
    assert version(checkout) == of_scm(checkout) == f"0.9.1.dev1+g{short}"


@without_git
@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("way", ["clone", "archive"])
def test_two_builds_of_a_commit_are_equal_byte_for_byte(
    checkout: Path, tmp_path: Path, way: str
) -> None:
    """In two copies, with other dates and modes; the second wheel is built from the sdist."""
    hashes = []
    code = "import sys; from setuptools import build_meta as b; "
    code += "print(getattr(b, f'build_{sys.argv[1]}')(sys.argv[2]))"
    for name, umask in (("a", 0o022), ("another one", 0o077)):
        source, out = tmp_path / name / "clone", tmp_path / name / "out"
        copy = {
            "clone": 'git clone --quiet "$0" "$1"',
            "archive": 'mkdir -p "$1" && git -C "$0" archive HEAD | tar -x -C "$1"',
        }
        subprocess.run(["sh", "-c", copy[way], checkout, source], check=True, umask=umask)
        for path in source.rglob("*.py"):
            os.utime(path, (1e9 + umask, 1e9 + umask))
        if umask == 0o077:  # this one was used before
            python(source, "import blimp", PYTHONDONTWRITEBYTECODE="")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        for what in ("sdist", "wheel"):
            ended = ran(
                [sys.executable, "-W", "ignore", "-c", code, what, out],
                cwd=source,
                env=environment,
                umask=umask,
                check=True,
                timeout=60,
            )
            if what == "sdist" and umask == 0o077:
                sdist = out / ended.stdout.split()[-1]
                subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True, umask=umask)
                source = tmp_path / sdist.name.removesuffix(".tar.gz")
        hashes.append({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.iterdir()})
        with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:  # an index has no file of ours
            (about,) = [one for one in wheel.namelist() if one.endswith("METADATA")]
            assert b"picture" not in wheel.read(about)
            assert re.findall(rb"\]\((?!https://)", wheel.read(about)) == []
    assert len(hashes[0]) == 2
    assert hashes[0] == hashes[1]


@without_git
def test_a_build_in_a_checkout_has_no_file_of_an_earlier_version(checkout: Path) -> None:
    """As pip leaves it there: found in a box, where a removed package hid a module."""
    old = checkout / "build" / "lib" / "blimp" / "errors"
    old.mkdir(parents=True)
    (old / "__init__.py").touch()
    code = "from setuptools import build_meta as b; b.build_wheel('out')"
    ran([sys.executable, "-W", "ignore", "-c", code], cwd=checkout, check=True, timeout=60)
    with zipfile.ZipFile(next((checkout / "out").glob("*.whl"))) as wheel:
        names = [one for one in wheel.namelist() if one.startswith("blimp/errors")]
    assert names == ["blimp/errors.py"]


@without_git
def test_changes_that_are_not_committed_are_said(checkout: Path) -> None:
    git(checkout, "tag", "v0.9.0")
    (checkout / "README.md").write_text("other\n")
    commit = git(checkout, "rev-parse", "HEAD")
    said = python(checkout, "from blimp.distribution import described; print(described())")
    assert said == (
        f"0.9.1.dev0+g{commit[:9]}.changed (commit {commit[:12]}, with changes, in {checkout})"
    )


@without_git
def test_without_git_there_is_a_version(checkout: Path) -> None:
    code = "from blimp.distribution import described; print(described())"
    said = python(checkout, code, PATH="/nonexistent")
    assert said == f"0.1.0.dev0 (commit unknown, in {checkout})"


def test_a_wheel_says_what_it_was_built_from_and_asks_nobody(tmp_path: Path) -> None:
    package = tmp_path / "blimp"
    package.mkdir()
    for name in ("__init__.py", "distribution.py", "errors.py"):
        shutil.copy(ROOT / "blimp" / name, package)
    about = tmp_path / "blimp_autopilot-3.2.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: blimp-autopilot\nVersion: 3.2.1\n"
        'Requires-Dist: mcap<2,>=1.6; extra == "ship"\nRequires-Dist: segno; extra == "page"\n'
        'Requires-Dist: blimp-autopilot[ship]; extra == "page"\nRequires-Dist: redis>=5.2\n'
    )
    (package / "_build.py").write_text(f'VERSION = "3.2.1"\nCOMMIT = "{"a1" * 20}"\n')
    (tmp_path / ".git").write_text("this is somebody's, who installed into his own repository")
    said = python(tmp_path, "from blimp.distribution import described as d; print(d())", PATH="")
    assert said == "3.2.1 (commit a1a1a1a1a1a1)"
    hint = python(tmp_path, "from blimp.distribution import install_hint as h; print(h('page'))")
    pip, *words = shlex.split(hint)  # quoted where the path of this Python has a space
    assert Path(pip).name == "pip"
    assert words == ["install", "segno", "mcap<2,>=1.6"]  # of an index, but not this project


def test_every_package_that_is_installed_is_locked_and_its_licence_is_known() -> None:
    """An addition is a decision: `python -m tests.constraints` writes the list."""
    listed = dict(
        re.findall(r"^([\w-]+)==.*?  # (.+)$", constraints.PATH.read_text("utf-8"), re.MULTILINE)
    )
    assert constraints.needed() - set(listed) == set()
    assert set(listed.values()) - constraints.ALLOWED == set()
    assert {one: constraints.licence(one) for one in listed if constraints.is_here(one)} == {
        one: said for one, said in listed.items() if constraints.is_here(one)
    }


def test_what_is_not_ours_has_its_licence_beside_it_and_in_the_metadata() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {path for pattern in about["license-files"] for path in ROOT.glob(pattern)}
    vendor = ROOT / "ground_station" / "page" / "static" / "vendor"
    theirs = [*vendor.glob("*.js"), *vendor.glob("*.css"), *ROOT.glob("tests/*.min.js")]
    licences = {path.with_name(f"{path.name.partition('.')[0]}.LICENSE") for path in theirs}
    licences |= {path.with_name("README.md") for path in ROOT.glob("tests/**/*.csv")}
    assert len(licences) == 4
    assert named == licences | {ROOT / "LICENSE"}


@without_git
def test_no_release_with_rows_of_platforms_that_are_of_other_code(checkout: Path) -> None:
    step = {"python": {"state": "passed"}}
    head = git(checkout, "rev-parse", "HEAD")
    rows = {name: {"commit": head, "steps": step} for name in release.RELEASED_ON}
    (checkout / "README.md").write_text("no code\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "a document")
    assert release.stale(rows, checkout) == []
    (checkout / "blimp" / "errors.py").write_text("")
    git(checkout, "commit", "--quiet", "--all", "--message", "code")
    rows["sid"] = {"commit": "0" * 40, "steps": {"python": {"state": "FAILED"}}}
    del rows["trixie"]
    assert release.stale(rows, checkout) == [
        "no row trixie", f"bookworm: 1 files changed since {head[:12]}",
        f"sid: its commit {'0' * 12} is not in this history",
    ]  # fmt: skip


@pytest.mark.parametrize("program", ["blimp", "ground_station", "blimp.queue"])
def test_every_program_says_version_and_commit(program: str) -> None:
    ended = ran([sys.executable, "-m", program, "--version"], cwd=ROOT, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    pattern = r"\S+ \(commit ([0-9a-f]{12}|unknown)(, with changes)?, in .+\)"
    assert re.fullmatch(pattern, ended.stdout.strip())


def test_nothing_says_to_install_this_project_from_an_index() -> None:
    """On the index `blimp` is a stranger's, and this project's name free for one to take."""
    wrong = re.compile(
        r"pip install .*\bblimp(?:-autopilot)?(?![-_.\w/])|\bblimp(?:-autopilot)?\[[a-z]"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for pattern in (
            *(f"{room}/**/*.{kind}" for room in ("blimp", "ground_station") for kind in SHOWN),
            "docs/**/*.md",
            "docs/**/*.html",
            "*.md",
            "Makefile",
            "*.txt",
        )
        for path in sorted(ROOT.glob(pattern))
        if not path.is_relative_to(ROOT / "docs" / "decisions")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if wrong.search(line)
    ]
    assert found == []


@pytest.mark.process
@pytest.mark.long
def test_a_users_program_beside_an_editable_install_sees_the_types(tmp_path: Path) -> None:
    """Of an install whose packages are found by an import hook, mypy finds none."""
    program = tmp_path / "program.py"
    program.write_text(
        "from ground_station.ship import Ship\n\n\n"
        'async def fly(ship: Ship) -> None:\n    await ship.takeoff("3")\n'
    )
    paths = ("PYTHONPATH", "MYPYPATH")
    ended = ran(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program],
        cwd=tmp_path,
        env={name: v for name, v in os.environ.items() if name not in paths},
        timeout=300,
    )
    assert "Found 1 error in 1 file" in ended.stdout, ended
    assert 'to "takeoff" of "Ship" has incompatible type "str"; expected "float"' in ended.stdout
