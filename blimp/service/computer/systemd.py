"""The units that run a ship under systemd: what installs them, and what removes them.

Their texts are in `units/`, with {placeholders} for what differs from ship to ship.
"""

import grp
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.ability import camera_of
from blimp.errors import AirframeError, BlimpError, ConfigError
from blimp.link.paths import BROKER_DIR
from blimp.service.computer.configuration import Configuration
from blimp.service.files import write_whole
from blimp.service.stack.broker import find_server_binary, server_arguments

UNIT_DIR = Path("/etc/systemd/system")
USER = "blimp"
TARGET = "blimp.target"
FLIGHT, WORKER = "blimp-flight.service", "blimp-worker.service"
RELAY, BROKER = "blimp-relay.service", "blimp-broker.service"
RECORDER = "blimp-recorder.service"
CAMERA = "blimp-camera.service"  # only of an airframe that has one
MAVLINK = "blimp-mavlink.service"  # only of a configuration that asks for it
PAGE = "blimp-page.service"  # of every ship; it starts only if there is a key, see `page_switch`
UNITS = (TARGET, FLIGHT, WORKER, RELAY, PAGE, RECORDER, BROKER)
# The groups that own a Pi's buses. One that this machine lacks would keep the unit from starting.
GROUPS = ("gpio", "i2c", "spi", "dialout")
CAMERA_GROUPS = ("video", "render")  # of the camera, and of memory that it shares
_WRITTEN = "# Written by `blimp install-service`."  # the first line of every unit, of any version
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)
_WITHOUT_SYSTEMD = re.compile("useradd |ch|sync|systemctl (en|dis)able ")
_LOCAL = (  # RFC 1918, RFC 4193
    "IPAddressDeny=any\n"
    "IPAddressAllow=localhost link-local 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"
)
_COMMAND_TIMEOUT_S = 90.0
_QUESTION_TIMEOUT_S = 2.0


class UnitFile(msgspec.Struct, frozen=True):
    path: str
    text: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to this machine: files to write or to remove, then commands to run."""

    files: tuple[UnitFile, ...]
    commands: tuple[str, ...]


def plan_install(
    configuration: Configuration,
    *,
    config_path: Path,
    user: str,
    python: str = sys.executable,
    unit_dir: Path = UNIT_DIR,
) -> Change:
    """Return the units of a ship, and the commands that start them now and at every boot.

    Raises ConfigError if `user` cannot be the name of one, BlimpError if the ship is to have
    its own broker and there is none on this machine.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
        raise ConfigError(f"--user: {user[:40]!r} cannot name a user")
    units = [FLIGHT, WORKER, RELAY, PAGE]
    units += [RECORDER] if configuration.log_mb != 0 else []
    units += [CAMERA] if has_camera(configuration) else []
    units += [MAVLINK] if configuration.mavlink is not None else []
    units += [BROKER] if configuration.has_local_broker else []
    words = {
        "blimp": unit_words([python, "-m", "blimp"]),
        "user": user,
        "groups": " ".join(group for group in GROUPS if _group_exists(group)),
        "camera_groups": " ".join(group for group in CAMERA_GROUPS if _group_exists(group)),
        "config": unit_words([str(config_path)]),
        "key": "",
        "log_dir": "",
        "broker": "",
        "page_key": _unit_path(config_path.with_name("page.key")),
        "group": _group_of(user) or user,
        # The page has no TLS, so it is for local networks; of a broker elsewhere it is not known.
        "addresses": _LOCAL if configuration.has_local_broker else "",
        "hardening": _template("hardening.conf"),
        "wants": " ".join(units),
    }
    if configuration.signing_key_file is not None:
        words["key"] = (
            f"LoadCredential=signing.key:{_unit_path(Path(configuration.signing_key_file))}\n"
            "Environment=BLIMP_SIGNING_KEY_FILE=%d/signing.key"
        )
    if configuration.log_dir is not None:
        words["log_dir"] = f"ReadWritePaths=-{_unit_path(Path(configuration.log_dir))}"
    if configuration.has_local_broker:
        server = server_arguments(binary=find_server_binary(), directory=BROKER_DIR)
        mend = [python, "-m", "blimp.service.stack.broker_files", "mend", str(BROKER_DIR)]
        words["mend"] = unit_words([*mend, server[0]])
        # Its log goes to the journal. Members of the user's group reach it, through ssh too.
        words["broker"] = unit_words([*server, "--logfile", "", "--unixsocketperm", "770"])
    files = [UnitFile(str(unit_dir / n), _template(n).format_map(words)) for n in (TARGET, *units)]
    commands = [
        # Its broker's URL may hold a password. Not a credential: of systemd 252, ExecStopPost
        # of a unit with ProtectSystem cannot read one, and would leave the motors running.
        shlex.join(["chgrp", words["group"], str(config_path)]),
        shlex.join(["chmod", "640", str(config_path)]),
        "systemctl daemon-reload",
        f"systemctl enable {TARGET}",
        # Neither pip, cp nor systemctl waits for the card: for half a minute a power cut would take
        # what they wrote, and leave a ship whose program is empty files.
        "sync",
        f"systemctl restart {TARGET}",
    ]
    if _group_of(user) is None:
        commands.insert(
            0,
            f"useradd --system --user-group --no-create-home --home-dir {BROKER_DIR.parent} "
            f"--shell /usr/sbin/nologin {user}",
        )
    return Change(files=tuple(files), commands=tuple(commands))


def has_camera(configuration: Configuration) -> bool:
    """Return whether the airframe has a camera; of one that cannot be read, the ship says why."""
    try:
        return camera_of(airframes.load(configuration.airframe)) is not None
    except AirframeError:
        return False


def plan_uninstall(*, unit_dir: Path = UNIT_DIR) -> Change:
    """Return the units that are installed, and the commands that stop them.

    Configuration, keys, the user and the broker's messages stay.
    """
    paths = installed_units(unit_dir)
    names = " ".join(path.name for path in paths)
    return Change(
        files=tuple(UnitFile(str(path), path.read_text("utf-8")) for path in paths),
        commands=(f"systemctl stop {names}", f"systemctl disable {names}") if paths else (),
    )


def installed_units(unit_dir: Path) -> list[Path]:
    """Return the units in a directory that this version writes, or another one has written."""
    ours = [path for name in UNITS if (path := unit_dir / name).exists()]
    others = [
        path
        for path in sorted(unit_dir.glob("blimp*.*"))
        if path not in ours and path.is_file() and _is_written(path)
    ]
    return ours + others


def install(change: Change) -> None:
    """Write the units, remove one that is no longer wanted, and run the commands."""
    written = [Path(file.path) for file in change.files]
    for path, file in zip(written, change.files, strict=True):
        write_whole(path, file.text)
    for stale in installed_units(written[0].parent):
        if stale not in written:
            if active_state(stale.name) not in ("", "inactive", "failed"):
                run_commands([f"systemctl stop {stale.name}"])  # without its file, nothing would
            stale.unlink(missing_ok=True)
    run_commands(change.commands)


def uninstall(change: Change) -> None:
    """Stop the units, then remove their files."""
    run_commands(change.commands)
    for file in change.files:
        Path(file.path).unlink(missing_ok=True)
    run_commands(["sync", "systemctl daemon-reload"])


def has_systemd() -> bool:
    """Return whether a systemd runs this machine."""
    return _BOOTED.exists()


def hardening() -> list[str]:
    """Return the lines that close in each unit."""
    lines = _template("hardening.conf").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def active_state(unit: str) -> str:
    """Return the ActiveState of a unit, or why it is not known; "" if no systemd runs here."""
    if not has_systemd():
        return ""
    try:
        ended = subprocess.run(
            ["systemctl", "show", "--value", "--property=ActiveState", unit],
            capture_output=True, text=True, timeout=_QUESTION_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ended.stdout.strip() or ended.stderr.strip()


def unit_words(words: Sequence[str]) -> str:
    """Return a command line as a unit has it (systemd.service(5), Command lines)."""
    return " ".join(_unit_word(word) for word in words)


def _unit_word(word: str) -> str:
    word = word.replace("%", "%%").replace("$", "$$")
    if word and re.fullmatch(r"[\w@%$+=:,./-]+", word, re.ASCII):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unit_path(path: Path) -> str:
    """Return the path of a credential or a directory: no command line, it cannot be quoted."""
    if not path.is_absolute() or re.search(r"[\s:\"'\\]", str(path)):
        raise ConfigError(f"{path}: must be an absolute path without space, colon and quotes")
    return str(path).replace("%", "%%")


def _is_written(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(200).startswith(_WRITTEN)
    except OSError:
        return False


def _template(name: str) -> str:
    """Return a file of `units/`."""
    return (resources.files("blimp.service") / "units" / name).read_text("utf-8")


def _group_exists(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _group_of(user: str) -> str | None:
    """Return the name of a user's group, None if there is no such user."""
    try:
        return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return None


def run_commands(commands: Sequence[str]) -> None:
    """Run commands one after the other. Raises BlimpError with the first that fails."""
    for command in commands:
        if not has_systemd() and not _WITHOUT_SYSTEMD.match(command):
            continue  # an image that is being built: systemd reads the files at its first boot
        try:
            ended = subprocess.run(
                shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BlimpError(f"{command}: {error}") from error
        if ended.returncode:
            raise BlimpError(f"{command}: status {ended.returncode}: {ended.stderr.strip()}")
