"""The runtime directory of one ship: the name of every socket in it."""

from pathlib import Path

import msgspec

from blimp.errors import ConfigError

MAX_SOCKET_PATH_BYTES = 107  # sun_path of Linux is 108 with its closing NUL
_LONGEST_NAME = "broker/broker.sock"


class RuntimePaths(msgspec.Struct, frozen=True):
    """The sockets of one ship, all in one directory that only its user may enter."""

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
    def airframe(self) -> Path:
        """The airframe that the flight process flies, for when it is killed."""
        return self.directory / "airframe.json"

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


def emergency_socket(flight: Path) -> Path:
    """Return the socket for emergency stops beside the mailbox socket `flight`."""
    return flight.with_name("estop.sock")


def make_directory(path: Path) -> None:
    """Make `path`, for this user alone, if it is missing. Raises ConfigError if that fails."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"directory {path} cannot be made: {error.strerror}") from error
