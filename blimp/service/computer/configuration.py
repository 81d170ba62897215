"""The configuration of a ship's computer: one TOML file, written by `blimp init`.

Every command that runs on board takes it as `--config FILE`; an option on the command line
goes before it.
"""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from blimp import airframe as airframes
from blimp.config import (
    broker_is_of_this_machine,
    broker_url_from_environment,
    signing_keys_from_environment,
    vehicle_name,
)
from blimp.errors import ConfigError
from blimp.link.paths import LOCAL_BROKER
from blimp.queue.brokers import BROKERS
from blimp.queue.redis.urls import check_address, split_urls
from blimp.recording.directory import check_bound
from blimp.suggest import with_suggestion

LOG_DIR = Path("/var/lib/blimp/logs")  # of blimp-recorder.service
VERSION = 1  # of the file. One without `config_version`, as `init` writes it, has this one too.
_SCHEMES = BROKERS["streams"] + BROKERS["amqp"]

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """airframe: a known name, or the absolute path of a .toml file.

    config_version: of the file's keys and what they mean.
    vehicle: the ship's name; None for the airframe's. signing_key_file: None if messages are
    not signed. log_dir, log_mb: where flights are recorded, and the bound of all logs there; None
    for the unit's directory and 1000 MB. mavlink: where stations find the ship, as --listen of
    `blimp mavlink`; None for nowhere. mavlink_key_file: the passphrase of its links.
    """

    config_version: int = VERSION
    airframe: _Text = "twin"
    vehicle: _Text | None = None
    broker: _Text = LOCAL_BROKER
    signing_key_file: _Text | None = None
    log_dir: _Text | None = None
    log_mb: int | None = None
    mavlink: _Text | None = None
    mavlink_key_file: _Text | None = None

    @property
    def has_local_broker(self) -> bool:
        """Whether the broker is the one that blimp-broker.service runs."""
        return self.broker == LOCAL_BROKER

    @property
    def broker_is_of_this_machine(self) -> bool:
        """Whether only this machine's processes reach the broker. Raises ConfigError."""
        check_broker(self.broker)
        return broker_is_of_this_machine(self.broker)

    def options(self) -> dict[str, str | int | list[str]]:
        """Return the options of the command line that it stands for.

        The environment goes before it: under systemd it names the credential with the keys.
        """
        options: dict[str, str | int | list[str]] = {
            "airframe": self.airframe,
            "vehicle": self.vehicle or airframes.load(self.airframe).name,
            "broker": broker_url_from_environment() or self.broker,
        }
        if self.signing_key_file is not None and signing_keys_from_environment() is None:
            options["signing_key_file"] = self.signing_key_file
        if self.log_dir is not None:
            options["log_dir"] = self.log_dir
        if self.log_mb is not None:
            options["log_mb"] = self.log_mb
        if self.mavlink is not None:
            options["listen"] = [self.mavlink]
        if self.mavlink_key_file is not None:
            options["mavlink_key_file"] = self.mavlink_key_file
        return options


def read_configuration(path: Path) -> Configuration:
    """Read and check a configuration file. Raises ConfigError naming file, key and limit."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"configuration {path}: {why}") from error
    return parse_configuration(text, where=f"configuration {path}")


def parse_configuration(text: str, *, where: str) -> Configuration:
    """Read a configuration from TOML text; `where` names it in errors."""
    try:
        table = tomllib.loads(text)
        _check_version(table.get("config_version", VERSION), where=where)
        configuration = msgspec.convert(table, Configuration)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        problem = with_suggestion(str(error), Configuration)
        raise ConfigError(f"{where}: {problem}") from error
    for key in ("airframe", "signing_key_file", "log_dir", "mavlink_key_file"):
        value = getattr(configuration, key) or "/"
        is_path = key != "airframe" or value.endswith(".toml")
        if is_path and not Path(value).is_absolute():
            raise ConfigError(f"{where}: {key} {value!r} must be an absolute path")
    if configuration.vehicle is not None:
        vehicle_name(configuration.vehicle, where=f"{where}: vehicle")
    if configuration.log_mb is not None:
        check_bound(configuration.log_mb, where=f"{where}: log_mb")
    try:
        check_broker(configuration.broker)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return configuration


def _check_version(version: object, *, where: str) -> None:
    """Raise ConfigError for a file of a newer program, before its keys are called unknown."""
    if version == VERSION and isinstance(version, int):
        return
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(
            f"{where}: written for a newer blimp (config_version {version}, this program reads "
            f"{VERSION}): upgrade the program, or write the file again: sudo blimp init --force"
        )
    raise ConfigError(f"{where}: config_version {version!r}: must be {VERSION}, or left out")


def check_broker(url: str) -> None:
    """Raise ConfigError unless `url` can be a broker's that other processes reach."""
    if "://" not in url:
        raise ConfigError(f"broker {url[:40]!r} is not a URL such as redis://host:6379/0")
    for one in split_urls(url):
        check_address(one, schemes=_SCHEMES)
