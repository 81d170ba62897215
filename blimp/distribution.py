"""What of this project runs here: its version and commit, and the command that adds an extra.

A wheel and an sdist say what they were built from in `blimp/_build.py`, which `setup.py` writes.
A checkout changes under an editable install, so there git is asked, when somebody wants to know.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from blimp.errors import ConfigError

NAME = "blimp-autopilot"  # no index has it; `blimp` on the index is a stranger's
_PACKAGES = ("blimp", "ground_station")  # what it installs, extras apart
WITHOUT_TAG = "0.1.0.dev0"  # pyproject.toml's fallback_version
_DESCRIBED = re.compile(r"(?:v(?P<tag>\S+)-(?P<distance>\d+)-g)?(?P<commit>[0-9a-f]{40})(-dirty)?")
_ARCHIVED = re.compile(
    r"^node: (?P<commit>[0-9a-f]{40})\n(?:.*\n)*?"
    r"describe-name: (?:v(?P<tag>\S+?)(?:-(?P<distance>\d+)-g[0-9a-f]+)?)?$",
    re.MULTILINE,
)
_SHORT = 9  # digits of a commit in a version, as setuptools-scm has it
_GIT_TIMEOUT_S = 5.0


class Build(NamedTuple):
    """commit: 40 digits, "" where it is not known. is_changed: files of it are not committed."""

    version: str
    commit: str = ""
    is_changed: bool = False


def source_directory() -> Path | None:
    """Return the directory of a checkout or an unpacked sdist that runs, None for a wheel."""
    directory = Path(__file__).resolve().parents[1]
    try:
        text = (directory / "pyproject.toml").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return directory if f'name = "{NAME}"' in text else None


@cache
def build() -> Build:
    """Return what runs. The first call in a checkout waits for git, 20 ms on a laptop."""
    # Not by the import alone: the finder of an editable install would find another copy's.
    if Path(__file__).with_name("_build.py").exists():
        from blimp._build import COMMIT, VERSION  # type: ignore[import-not-found, unused-ignore]

        return Build(VERSION, COMMIT)
    directory = source_directory()
    return Build(WITHOUT_TAG) if directory is None else _of_checkout(directory)


def described() -> str:
    """Return what `--version` prints: the version first, for programs."""
    found, directory = build(), source_directory()
    about = [f"commit {found.commit[:12]}"] if found.commit else ["commit unknown"]
    about += ["with changes"] if found.is_changed else []
    about += [f"in {directory}"] if directory is not None else []
    return f"{found.version} ({', '.join(about)})"


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of what runs, from the current directory.

    Of a wheel, by what the extra needs: no index has this project, a stranger could take its name.
    """
    directory = source_directory()
    pip = Path(sys.prefix, "bin", "pip")
    is_other = sys.prefix != sys.base_prefix and pip.exists() and shutil.which("pip") != str(pip)
    words = [_shown(pip) if is_other else "pip", "install"]
    words += _needs(extra) if directory is None else ["-e", f"{_shown(directory)}[{extra}]"]
    return shlex.join(words)


def _needs(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        found = [line.partition(";") for line in requires(NAME) or ()]
    except PackageNotFoundError:  # a copy of the package alone
        return [f"{NAME.replace('-', '_')}-{build().version}-py3-none-any.whl[{extra}]"]
    mine = [name.strip() for name, _, marker in found if f'extra == "{extra}"' in marker]
    others = [re.findall(r"[\w-]+", one)[1:] for one in mine if one.startswith(f"{NAME}[")]
    own = [one for one in mine if not one.startswith(f"{NAME}[")]
    return own + [one for names in others for name in names for one in _needs(name)]


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import in this block what an extra installs. what: "pictures need", for the message.

    Raises ConfigError with the command that installs it, if it is missing or cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        name = error.name or ""
        if isinstance(error, ModuleNotFoundError):
            if name.partition(".")[0] in _PACKAGES:
                raise  # a defect of ours, which no command installs
            problem = f" {name}"
        else:
            problem = f" more: {error}"
        raise ConfigError(f"{what}{problem}: {install_hint(extra)}") from error


def _shown(path: Path) -> str:
    try:
        shown = path.relative_to(Path.cwd())
    except (OSError, ValueError):  # the current directory is gone, or another one
        return str(path)
    return str(path if len(shown.parts) == 1 else shown)  # a shell would look for it in PATH


def _of_checkout(directory: Path) -> Build:
    """Ask git, and count as setuptools-scm does: a commit after a tag is of the next version."""
    answer = _git(directory, "describe", "--always", "--tags", "--long", "--match", "v[0-9]*",
                "--abbrev=40", "--dirty")  # fmt: skip
    match = _DESCRIBED.fullmatch(answer)
    if match is None:
        return _of_archive(directory)
    tag, distance = match["tag"], match["distance"]
    if tag is None:
        distance = _git(directory, "rev-list", "--count", "HEAD") or "0"
    return _counted(tag, distance, match["commit"], is_changed=answer.endswith("-dirty"))


def _of_archive(directory: Path) -> Build:
    """Return what `git archive` wrote into a file that is there for it."""
    try:
        match = _ARCHIVED.search((directory / ".git_archival.txt").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        match = None
    if match is None:
        return Build(WITHOUT_TAG)
    return _counted(match["tag"], match["distance"] or "0", match["commit"])


def _counted(tag: str | None, distance: str, commit: str, *, is_changed: bool = False) -> Build:
    """Return the version of a commit that many after a tag, or after the first commit."""
    if tag is not None and distance == "0" and not is_changed:
        return Build(tag, commit)
    base = WITHOUT_TAG.removesuffix(".dev0")
    if tag is not None:
        base = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), tag)
    changed = ".changed" * is_changed
    return Build(f"{base}.dev{distance}+g{commit[:_SHORT]}{changed}", commit, is_changed)


def _git(directory: Path, *words: str) -> str:
    """Return what git prints, "" if it fails or there is none.

    Named so, it answers for another user's directory too, which it otherwise refuses: its
    configuration could run programs. This directory's own code already runs.
    """
    if not (directory / ".git").exists():
        return ""
    import subprocess  # 5 ms, which a program that asks for no version need not pay

    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    command += ["--git-dir", str(directory / ".git"), "--work-tree", str(directory), *words]
    try:
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
