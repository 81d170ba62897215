"""Where a ship has its files: on board, and the name of every socket in its runtime directory."""

import os
import stat
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from blimp.system import HAS_OWNERS

ON_BOARD_DIR = Path("/run/blimp")  # systemd's RuntimeDirectory
CONFIG_PATH = Path("/etc/blimp/blimp.toml")  # of the ship that this machine is
BROKER_DIR = Path("/var/lib/blimp/broker")  # of blimp-broker.service, if the ship has one
MAX_SOCKET_PATH_BYTES = 107  # sun_path of Linux is 108 with its closing NUL
_LONGEST_NAME = "broker/broker.sock"


def socket_path(directory: Path) -> Path:
    """Return where the broker that has its files in `directory` listens."""
    return directory / "broker.sock"


def socket_url(directory: Path) -> str:
    """Return its kombu URL."""
    return f"redis+socket://{socket_path(directory)}?virtual_host=0"


LOCAL_BROKER = socket_url(BROKER_DIR)


class RuntimePaths(msgspec.Struct, frozen=True):
    """The sockets of one ship, all in one directory that only its user, or its group, may enter."""

    directory: Path

    @property
    def flight(self) -> Path:
        """The mailbox socket, on which the flight process receives commands."""
        return self.directory / "flight.sock"

    @property
    def worker(self) -> Path:
        """The worker's end of the mailbox."""
        return self.directory / "worker.sock"

    @property
    def relay(self) -> Path:
        """The end of the mailbox of the process that passes on emergency stops."""
        return self.directory / "relay.sock"

    @property
    def world(self) -> Path:
        """The simulated world's electrical interface."""
        return self.directory / "world.sock"

    @property
    def record(self) -> Path:
        """What the flight process leaves for its successor."""
        return self.directory / "flight.record"

    @property
    def tape(self) -> Path:
        """The ring in which the flight process leaves what it does, for the recorder."""
        return self.directory / "flight.tape"

    @property
    def camera(self) -> Path:
        """The socket on which the flight process hears what its camera sees."""
        return self.directory / "camera.sock"

    @property
    def camera_control(self) -> Path:
        """The socket on which the camera's process answers."""
        return self.directory / "camera-control.sock"

    @property
    def airframe(self) -> Path:
        """The airframe that the flight process flies, for when it is killed."""
        return self.directory / "airframe.json"

    @property
    def vehicle(self) -> Path:
        """The name of the ship, for who stops it from this machine."""
        return self.directory / "vehicle"

    @property
    def notify(self) -> Path:
        """The socket on which the supervisor receives readiness."""
        return self.directory / "notify.sock"

    @property
    def broker(self) -> Path:
        """The embedded broker's own directory."""
        return self.directory / "broker"

    def check(self) -> None:
        """Raise ConfigError when a socket's path would be longer than the kernel allows."""
        longest = len(bytes(self.directory / _LONGEST_NAME))
        if longest > MAX_SOCKET_PATH_BYTES:
            raise ConfigError(
                f"runtime directory {self.directory}: its socket paths have {longest} bytes, "
                f"the kernel's limit is {MAX_SOCKET_PATH_BYTES}: choose a shorter one"
            )


def paths_in(directory: Path | None) -> RuntimePaths:
    """Return the paths in `directory`, which is ON_BOARD_DIR by default. Raises ConfigError."""
    paths = RuntimePaths(directory or ON_BOARD_DIR)
    paths.check()
    return paths


def own_paths(directory: Path | None) -> RuntimePaths:
    """Return the paths of a process that puts sockets there. Raises ConfigError."""
    paths = paths_in(directory)
    why_not = distrust(paths.directory) if paths.directory.exists() else ""
    if why_not:
        raise ConfigError(f"runtime directory {paths.directory} {why_not}")
    return paths


def emergency_socket(flight: Path) -> Path:
    """Return the socket for emergency stops beside the mailbox socket `flight`."""
    return flight.with_name("estop.sock")


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at `path` from another one there, None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_of_group(directory: Path) -> bool:
    """Say whether a directory lets in its group and nobody else, as those of the units do.

    Then the group may use what its owner puts there: command a ship, read its logs. In any other
    directory, only its owner may, and root.
    """
    try:
        mode = directory.stat().st_mode
    except OSError:
        return False  # who uses it says so
    return mode & (stat.S_IRWXG | stat.S_IRWXO) == stat.S_IRGRP | stat.S_IXGRP


def make_own_directory(path: Path, *, what: str = "directory", cure: str = "") -> None:
    """Make `path` and what is missing above it, for this user alone.

    Raises ConfigError if that fails, or if another user could put files into it; then nothing
    was made. what, cure: what it is and what to do about it, for the error.
    """
    why_not = distrust(path) if path.is_dir() or path.is_symlink() else _distrust_above(path)
    if why_not:
        raise ConfigError(f"{what} {path} {why_not}{cure}")
    for directory in reversed((path, *path.parents)):
        if not directory.is_dir():
            make_directory(directory)
    why_not = distrust(path)  # somebody may have been quicker
    if why_not:
        raise ConfigError(f"{what} {path} {why_not}{cure}")


def distrust(path: Path) -> str:
    """Return why another user could put files into the directory `path`; "" if none could.

    It must be a real directory of this user that nobody else may write. Each one above it must
    belong to this user or root, and be written by them alone, or protect its entries as /tmp
    does: who may rename `path` can put another in its place.
    """
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        return "is not a directory"
    if not HAS_OWNERS:
        return ""
    if about.st_uid != os.getuid():
        return f"belongs to user {about.st_uid}, not to {os.getuid()}"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others (mode {stat.S_IMODE(about.st_mode):o})"
    return _distrust_above(path)


def _distrust_above(path: Path) -> str:
    if not HAS_OWNERS:
        return ""
    for start in (path.absolute(), path.resolve()):  # links on the way, and where they lead
        for above in start.parents:
            try:
                about = above.lstat()
            except FileNotFoundError:
                continue
            is_sticky = stat.S_ISDIR(about.st_mode) and bool(about.st_mode & stat.S_ISVTX)
            # In a container, /tmp itself may belong to a user that is unknown there.
            is_known = about.st_uid in (0, os.getuid()) or (is_sticky and above == Path("/tmp"))
            if not is_known:
                return f"is in {above}, which belongs to user {about.st_uid}"
            if is_sticky:
                break
            others = stat.S_IWOTH | (0 if about.st_gid == os.getgid() else stat.S_IWGRP)
            if not stat.S_ISLNK(about.st_mode) and about.st_mode & others:
                return f"is in {above}, which others may write"
    return ""


def make_directory(path: Path) -> None:
    """Make `path`, for this user alone, if it is missing. Raises ConfigError if that fails."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"directory {path} cannot be made: {error.strerror}") from error
