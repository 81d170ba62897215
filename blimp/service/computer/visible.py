"""What the units cannot read of a ship: what is below /tmp, and what is closed to their user.

What a directory's mode tells is said with that directory. The rest is tried, by this module as a
program, as the units' user and closed in as they are: files that pip wrote for root alone, access
lists, security modules.
"""

import importlib
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import blimp
from blimp.errors import BlimpError, ConfigError
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.systemd import hardening, has_systemd
from blimp.service.stack.broker import find_server_binary

PRIVATE = (Path("/tmp"), Path("/var/tmp"))  # PrivateTmp: another one in each unit


# What the commands of the units import, apart from the recorder's, which needs an extra.
_MODULES = ("blimp.cli", "blimp.service.compose", "blimp.service.work", "blimp.service.safe_state")
_RECORDER = "blimp.service.recorder"
_TRIAL_TIMEOUT_S = 60.0  # a Pi Zero imports all of it in several seconds
_CURE = "move it to a directory that every user may read, as /opt/blimp in docs/pi.md"


def check_visible(
    configuration: Configuration, *, config_path: Path, user: str, python: str = sys.executable
) -> None:
    """Raise ConfigError if a unit that runs as `user` could not read what it needs.

    `user` may be one that is not there yet: it is in no group, and owns nothing.
    """
    _check("the program", Path(python), user=user, cure=_CURE, executed=True)
    _check("the program's Python", Path(sys.base_prefix), user=user, cure=_CURE)
    _check("the program", Path(blimp.__file__).parent, user=user, cure=_CURE)
    cure = "keep it in /etc/blimp"
    _check("the configuration", config_path.parent, user=user, cure=cure)  # its group comes later
    if configuration.airframe.endswith(".toml"):
        _check("the airframe", Path(configuration.airframe), user=user, cure=cure)


def try_visible(configuration: Configuration, *, user: str, python: str = sys.executable) -> None:
    """Raise ConfigError if a unit of `user`, closed in as ours are, could not run the program.

    Without a systemd that runs, in an image that is being built, nothing is tried.
    """
    if not has_systemd():
        return
    try:
        pwd.getpwnam(user)
    except KeyError:
        user = "nobody"  # is in no group and owns nothing, as a user who is made later
    package = Path(blimp.__file__).parent
    modules = (*_MODULES, *([_RECORDER] if configuration.log_mb != 0 else []))
    files = [configuration.airframe] if configuration.airframe.endswith(".toml") else []
    files += [str(find_server_binary())] if configuration.has_local_broker else []
    command = [
        "systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--working-directory=/",
        f"--property=User={user}", *(f"--property={line}" for line in hardening()),
        f"--setenv=PYTHONPATH={package.parent}", "--setenv=PYTHONDONTWRITEBYTECODE=1",
        "--", python, "-m", __name__, ",".join(modules), *files,
    ]  # fmt: skip
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BlimpError(f"the program could not be tried as user {user!r}: {error}") from error
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        raise ConfigError(
            f"tried as the user {user!r}, closed in as the units are: {lines[-1]}: "
            f"sudo chmod -R a+rX {package}, or {_CURE}"
        )


def main(modules: str, *files: str) -> None:
    """Try, in a unit, what the units do; end with the first thing that cannot be read."""
    for name in modules.split(","):
        importlib.import_module(name)
    package = Path(blimp.__file__).parent
    # Python does without its cache where it may not read it; root's imports may have written it.
    found = [path for path in package.rglob("*") if "__pycache__" not in path.parts]
    for path in (*found, *map(Path, files)):
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            sys.exit(f"{path} is not readable")


def _check(what: str, path: Path, *, user: str, cure: str, executed: bool = False) -> None:
    places = list(_on_the_way(path))
    for place in PRIVATE:
        if place in places:
            raise ConfigError(
                f"{what} is {path}: units have a {place} of their own (PrivateTmp), in which it is "
                f"not: {cure}"
            )
    for place in places:
        try:
            about = place.stat()
        except OSError as error:
            raise ConfigError(f"{what} is {path}: {place}: {error.strerror}") from error
        is_executed = executed and not stat.S_ISDIR(about.st_mode)
        needs = stat.S_IXOTH if is_executed or stat.S_ISDIR(about.st_mode) else stat.S_IROTH
        if not _may(about, needs, user=user):
            verb = "execute" if is_executed else "read"
            raise ConfigError(
                f"{what} is {path}, but the user {user!r} may not {verb} {place} (mode "
                f"{stat.S_IMODE(about.st_mode):o}): {cure}"
            )


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yield `path` and each directory above it, as it is written and where its links lead."""
    for start in dict.fromkeys((path.absolute(), path.resolve())):
        yield from (*reversed(start.parents), start)


def _may(about: os.stat_result, needs: int, *, user: str) -> bool:
    """Whether the bits of a file let `user` in; the units have no capability that passes them."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return bool(about.st_mode & needs)
    if about.st_uid == account.pw_uid:
        return bool(about.st_mode & needs << 6)
    if about.st_gid in os.getgrouplist(user, account.pw_gid):
        return bool(about.st_mode & needs << 3)
    return bool(about.st_mode & needs)


if __name__ == "__main__":
    main(*sys.argv[1:])
