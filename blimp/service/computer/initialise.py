"""`blimp init`: asks what a ship's computer must know, and writes it down with comments."""

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.config import DEFAULT_LOG_MB, read_signing_keys, vehicle_name
from blimp.errors import BlimpError, ConfigError
from blimp.link.paths import CONFIG_PATH, LOCAL_BROKER
from blimp.service.computer.configuration import (
    Configuration,
    check_broker,
    parse_configuration,
)
from blimp.service.files import make_directory, write_whole

KEY_BYTES = 32
KEY_NAME = "signing.key"
LOCAL = "local"  # a person's word for LOCAL_BROKER


class Question(msgspec.Struct, frozen=True):
    """check: raises BlimpError for an answer that cannot be used."""

    text: str
    default: str
    check: Callable[[str], object]


Ask = Callable[[Question], str]

_TEXT = """\
# What this ship's computer must know. `blimp init` wrote it, `blimp doctor` checks it.
# After a change: sudo systemctl restart blimp.target

# The ship: a known airframe ({known}), or the absolute path of a .toml file.
airframe = {airframe}

# Its name, which is its queue's name too: ground --vehicle NAME. 1 to 32 of a-z, 0-9, _ and -.
vehicle = {vehicle}

# Where commands come from: redis://, rediss://, valkey:// or amqp://. The default is a Valkey or
# Redis on a Unix socket of this computer, run by blimp-broker.service.
broker = {broker}

# A file with the keys that sign commands, the signing one first; all others are refused. The
# ground station needs the same file, in BLIMP_SIGNING_KEY_FILE. Only root reads it here.
{signing_key_file}

# Where flights are recorded, and the bound of all logs there in MB: the oldest go first, 0 records
# nothing. By default /var/lib/blimp/logs and 1000, which is about 20 hours.
{logs}

# Where stations of MAVLink find the ship, and the file with a passphrase that signs their messages,
# without which only 127.0.0.1 is listened on. By default nowhere.
{gateway}
"""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; None for what is to be asked."""

    airframe: str | None = None
    vehicle: str | None = None
    broker: str | None = None
    sign: bool | None = None
    new_key: bool = False


def initialise(path: Path, wishes: Wishes, *, ask: Ask, force: bool) -> Configuration:
    """Write the configuration file, and a key if messages are to be signed; return what it says.

    A key that is there already is kept; a new one goes before it, so that ground stations with
    the old one still reach the ship. Only the default file's directory is made. Raises
    ConfigError if the file is there and not `force`, if its directory is not, or if an answer
    cannot be used; then nothing is written.
    """
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already: --force replaces it")
    if path.parent != CONFIG_PATH.parent and not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: no directory {path.parent}")
    configuration = _asked(wishes, ask=ask, key=path.with_name(KEY_NAME))
    text = as_text(configuration)
    parse_configuration(text, where=str(path))
    if path.parent == CONFIG_PATH.parent:
        make_directory(path.parent)
    if configuration.signing_key_file is not None:
        _write_key(Path(configuration.signing_key_file), new=wishes.new_key)
    # For its owner alone: the broker's URL may hold a password. But a file that the units' user may
    # read stays so: a flight process that is restarted in the air could not read the new one.
    mode = path.stat().st_mode & 0o640 if path.exists() else 0o600
    write_whole(path, text, mode=mode, keep_owner=True)
    return configuration


def as_text(configuration: Configuration) -> str:
    """Return the commented file of a configuration."""
    values = {
        key: json.dumps(value)  # a JSON string is a TOML string
        for key, value in msgspec.to_builtins(configuration).items()
    }
    given = configuration.signing_key_file is not None
    line = f"signing_key_file = {values['signing_key_file']}"
    values["signing_key_file"] = line if given else f'# signing_key_file = "/etc/blimp/{KEY_NAME}"'
    defaults = {
        "logs": {"log_dir": '"/var/lib/blimp/logs"', "log_mb": str(DEFAULT_LOG_MB)},
        "gateway": {
            "mavlink": '"udp:0.0.0.0:14550"', "mavlink_key_file": '"/etc/blimp/mavlink.key"',
        },
    }  # fmt: skip
    for part, keys in defaults.items():
        values[part] = "\n".join(
            f"# {key} = {default}" if values[key] == "null" else f"{key} = {values[key]}"
            for key, default in keys.items()
        )
    return _TEXT.format(known=", ".join(airframes.names()), **values)


def _asked(wishes: Wishes, *, ask: Ask, key: Path) -> Configuration:
    known = f"{', '.join(airframes.names())}, or the path of a .toml file"
    airframe = wishes.airframe or ask(Question(f"Airframe ({known})", "twin", airframes.load))
    if airframe.endswith(".toml"):
        airframe = str(Path(airframe).absolute())
    name = airframes.load(airframe).name
    vehicle = wishes.vehicle or ask(Question("Name of the ship", name, _check_vehicle))
    broker = wishes.broker or ask(
        Question(f"Broker URL ({LOCAL}: one on this computer)", LOCAL, _check_broker)
    )
    configuration = Configuration(
        airframe=airframe, vehicle=vehicle, broker=LOCAL_BROKER if broker == LOCAL else broker
    )
    sign = wishes.sign
    if sign is None:
        default = "no" if configuration.broker_is_of_this_machine else "yes"
        sign = ask(Question("Sign commands with a key (yes or no)", default, _check_yes)) == "yes"
    if sign:
        return msgspec.structs.replace(configuration, signing_key_file=str(key))
    return configuration


def _write_key(path: Path, *, new: bool) -> None:
    keys = read_signing_keys(path) if path.exists() else ()
    if keys and not new:
        return
    write_whole(path, "\n".join([secrets.token_urlsafe(KEY_BYTES), *keys[:1]]) + "\n", mode=0o600)


def take_defaults(question: Question) -> str:
    """Answer for nobody."""
    return question.default


def ask_until_usable(prompt: Callable[[str, str], str], *, say: Callable[[str], None]) -> Ask:
    """Return what asks a person with `prompt`, again after an answer that cannot be used."""

    def ask(question: Question) -> str:
        while True:
            answer = prompt(question.text, question.default).strip()
            try:
                question.check(answer)
            except BlimpError as error:
                say(str(error))
            else:
                return answer

    return ask


def _check_vehicle(name: str) -> None:
    vehicle_name(name, where="answer")


def _check_broker(url: str) -> None:
    if url != LOCAL:
        check_broker(url)


def _check_yes(answer: str) -> None:
    if answer not in ("yes", "no"):
        raise ConfigError(f"{answer[:20]!r}: yes or no")
