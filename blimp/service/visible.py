"""What the units cannot read of a ship: what is below /tmp, and what is closed to their user."""

import os
import pwd
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import blimp
from blimp.errors import ConfigError
from blimp.service.configuration import Configuration

PRIVATE = (Path("/tmp"), Path("/var/tmp"))  # PrivateTmp: another one in each unit


def check_visible(
    configuration: Configuration, *, config_path: Path, user: str, python: str = sys.executable
) -> None:
    """Raise ConfigError if a unit that runs as `user` could not read what it needs.

    `user` may be one that is not there yet: it is in no group, and owns nothing.
    """
    cure = "move it to a directory that every user may read, as /opt/blimp in docs/pi.md"
    _check("the program", Path(python), user=user, cure=cure, executed=True)
    _check("the program's Python", Path(sys.base_prefix), user=user, cure=cure)
    _check("the program", Path(blimp.__file__).parent, user=user, cure=cure)
    cure = "keep it in /etc/blimp"
    _check("the configuration", config_path.parent, user=user, cure=cure)  # its group comes later
    if configuration.airframe.endswith(".toml"):
        _check("the airframe", Path(configuration.airframe), user=user, cure=cure)


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
