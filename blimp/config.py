"""Environment variables. They are read here and nowhere else.

| variable                 | meaning                                                              |
|--------------------------|----------------------------------------------------------------------|
| `BLIMP_BROKER_URL`       | the broker, if the command line names none                           |
| `BLIMP_VEHICLE`          | the ship, if the command line names none                             |
| `BLIMP_SIGNING_KEY`      | signs commands; others are refused; several keys, separated by space |
| `BLIMP_SIGNING_KEY_FILE` | a file with these keys instead; only its owner may read it           |
| `CREDENTIALS_DIRECTORY`  | systemd's: `signing.key` in it has the keys, if neither is set       |
| `BLIMP_REMOTE_CONTROL`   | what Celery clients may do to a ship: `inspect`, `all` or `off`      |
| `XDG_STATE_HOME`         | parent of `blimp/`: this user's pilot grants; `~/.local/state`       |
| `BLIMP_LOG_DIR`          | where flights are recorded; `blimp/logs` in `XDG_STATE_HOME`         |
| `BLIMP_LOG_MB`           | bound of all logs there, the oldest go first; 0: none; 1000          |
| `BLIMP_PHOTO_DIR`        | the ship's photographs; `blimp/camera` in `XDG_STATE_HOME`           |
| `BLIMP_FOXGLOVE_PORT`    | a port of this machine for Foxglove's live view; none by default     |
| `XDG_RUNTIME_DIR`        | parent of the run registry; `/tmp` if it is not set                  |
| `BLIMP_REALTIME`         | 0: flight process and simulated world do not ask for SCHED_FIFO; 1   |
| `BLIMP_TRACE_FILE`       | gets a line of JSON for each span                                    |
| `OTEL_*`                 | OpenTelemetry's own: the exporters of spans (see docs/observe.md)    |
| `NOTIFY_SOCKET`          | the socket on which systemd or `blimp up` receives readiness         |
| `WATCHDOG_USEC`          | how long either of them waits for a heartbeat of the flight process  |
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from blimp.queue.redis.urls import address_of, split_urls
from blimp.queue.watching import TraceSettings
from blimp.system import HAS_OWNERS, user_id

_OTLP_TRACES = "OTEL_EXPORTER_OTLP_TRACES_"
CREDENTIAL = "signing.key"  # systemd's LoadCredential
MAX_KEYS_BYTES = 64 * 1024
_TLS_OF = {"redis": "rediss", "valkey": "valkeys", "amqp": "amqps"}
VEHICLE_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"


DEFAULT_LOG_MB = 1000


class GroundConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a ground station finds its ship if the command line does not say.

    broker, vehicle: None if the environment does not name one.
    registry: the directory in which running stacks of this user are registered.
    state: the directory that keeps this user's grants of control between commands.
    """

    broker: str | None
    vehicle: str | None
    registry: Path
    state: Path = Path("~/.local/state/blimp")


def ground_config(environment: Mapping[str, str] | None = None) -> GroundConfig:
    """Read the ground station's part of `environment`, by default this process's."""
    env = os.environ if environment is None else environment
    vehicle = env.get("BLIMP_VEHICLE") or None
    return GroundConfig(
        broker=broker_url_from_environment(env),
        vehicle=None if vehicle is None else vehicle_name(vehicle, where="BLIMP_VEHICLE"),
        registry=registry_dir(env),
        state=Path(env.get("XDG_STATE_HOME") or "~/.local/state") / "blimp",
    )


def broker_url_from_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """Return `BLIMP_BROKER_URL`, or None if it is unset or empty."""
    env = os.environ if environment is None else environment
    return env.get("BLIMP_BROKER_URL") or None


def signing_keys_from_environment(
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...] | None:
    """Return the signing keys, the signing one first; None if the environment names none.

    They are in `BLIMP_SIGNING_KEY`, in the file `BLIMP_SIGNING_KEY_FILE`, or in systemd's
    credential `signing.key`. Raises ConfigError if both variables are set, or one is empty: who
    sets one wants signed messages.
    """
    env = os.environ if environment is None else environment
    given, file = env.get("BLIMP_SIGNING_KEY"), env.get("BLIMP_SIGNING_KEY_FILE")
    if given is not None and file is not None:
        raise ConfigError("both BLIMP_SIGNING_KEY and BLIMP_SIGNING_KEY_FILE are set: unset one")
    for name, value in (("BLIMP_SIGNING_KEY", given), ("BLIMP_SIGNING_KEY_FILE", file)):
        if value is not None and not value.strip():
            raise ConfigError(
                f"{name} is set but empty: unset it, or make a key with `blimp keys new`"
            )
    if given is not None:
        return tuple(given.split())
    credential = Path(env.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / CREDENTIAL
    if file is None and not credential.is_file():
        return None
    return read_signing_keys(credential if file is None else Path(file), environment=env)


def read_signing_keys(
    path: Path, *, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the keys in a file, separated by space or line, the signing one first.

    Raises ConfigError if there is none, or if `check_private` refuses the file.
    """
    env = os.environ if environment is None else environment
    try:
        with path.open(encoding="ascii") as file:
            about = os.fstat(file.fileno())
            keys = tuple(file.read(MAX_KEYS_BYTES).split())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text of ASCII"
        raise ConfigError(f"signing key file {path}: {why}") from None
    check_private(about, f"signing key file {path}", path, environment=env)
    if not keys:
        raise ConfigError(f"signing key file {path}: there is no key in it: see blimp keys new")
    return keys


def check_private(
    about: os.stat_result, what: str, path: Path, *, environment: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError if another user than a file's owner, who is this one or root, may read it.

    systemd protects its credentials by their directory. what: begins the error's words.
    """
    env = os.environ if environment is None else environment
    is_credential = path.parent == Path(env.get("CREDENTIALS_DIRECTORY", "/nonexistent"))
    if not HAS_OWNERS:  # Windows: its own rules protect a user's directory
        return
    if about.st_mode & (0o007 if is_credential else 0o077):
        raise ConfigError(f"{what}: other users may read it: chmod 600 {path}")
    if about.st_uid not in (0, os.getuid()) and os.getuid() != 0:
        raise ConfigError(f"{what}: it belongs to user {about.st_uid}")


def check_broker_is_closed(urls: str, keys: Sequence[str] | None) -> None:
    """Raise ConfigError for a broker off this machine that strangers could command a ship by.

    urls: a broker's URL, or several, separated by ";". Who reaches such a broker, or its
    network, could read and change what passes, so it must have both TLS and signed messages.
    TLS that does not check whom it speaks to is none. Nor may it be a cluster.
    """
    for url in split_urls(urls):
        address = address_of(url)
        if address.tag:  # its emergency stops go past what puts the tag before keys and channels
            raise ConfigError(
                f"broker {address.shown_hosts}: the broker of a ship cannot be a cluster"
            )
        if address.is_of_this_machine:
            continue
        missing = []
        if not address.is_tls:
            missing.append(f"TLS: {_TLS_OF.get(address.scheme, 'rediss')}://")
        elif not address.checks_certificate:
            missing.append(
                "a check of its certificate: name the authority that signed it with "
                "ssl_ca_certs=FILE, and remove ssl_cert_reqs and ssl_check_hostname"
            )
        if not keys:
            missing.append("a signing key: blimp keys new, then --signing-key-file FILE")
        if missing:
            raise ConfigError(
                f"broker {address.shown_hosts} is not on this machine, and anybody on its network "
                f"could fly the ship: refused without {'; and '.join(missing)}"
            )


def broker_is_of_this_machine(urls: str) -> bool:
    """Whether a broker, or each of several, is reached by a Unix socket, or on loopback.

    Raises ConfigError for a URL that cannot be used.
    """
    return all(address_of(url).is_of_this_machine for url in split_urls(urls))


def remote_control_from_environment(environment: Mapping[str, str] | None = None) -> str:
    """Return `BLIMP_REMOTE_CONTROL`: what a ship's worker does for Celery's remote control.

    If it is unset, the worker answers questions and refuses unsigned commands.
    """
    env = os.environ if environment is None else environment
    return env.get("BLIMP_REMOTE_CONTROL") or "inspect"


def registry_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Return the run registry: `<registry>/<vehicle>.json` for every running stack."""
    env = os.environ if environment is None else environment
    return Path(env.get("XDG_RUNTIME_DIR") or "/tmp") / f"blimp-{user_id()}"


def state_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return what systemd keeps for this service (StateDirectory=), None outside of it."""
    env = os.environ if environment is None else environment
    first = env.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(first) if first else None


def log_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return `BLIMP_LOG_DIR`, by default a directory of this user's state."""
    env = os.environ if environment is None else environment
    state = Path(env.get("XDG_STATE_HOME") or "~/.local/state")
    return Path(env.get("BLIMP_LOG_DIR") or state / "blimp" / "logs").expanduser().absolute()


def photo_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return where ships keep their photographs, a directory each, until the ground has them.

    `BLIMP_PHOTO_DIR`, by default a directory of this user's state.
    """
    env = os.environ if environment is None else environment
    state = Path(env.get("XDG_STATE_HOME") or "~/.local/state")
    return Path(env.get("BLIMP_PHOTO_DIR") or state / "blimp" / "camera").expanduser().absolute()


def log_bound_mb(environment: Mapping[str, str] | None = None) -> int:
    """Return `BLIMP_LOG_MB`, the bound of all logs. Raises ConfigError if it is no number."""
    env = os.environ if environment is None else environment
    text = env.get("BLIMP_LOG_MB") or str(DEFAULT_LOG_MB)
    if not text.isdecimal():
        raise ConfigError(f"BLIMP_LOG_MB: {text[:20]!r} is not a whole number of MB")
    return int(text)


def realtime_from_environment(environment: Mapping[str, str] | None = None) -> bool:
    """Return `BLIMP_REALTIME`: whether to ask for SCHED_FIFO. Raises ConfigError if not 0 or 1."""
    env = os.environ if environment is None else environment
    text = env.get("BLIMP_REALTIME") or "1"
    if text not in ("0", "1"):
        raise ConfigError(f"BLIMP_REALTIME must be 0 or 1, not {text[:20]!r}")
    return text == "1"


def notify_address(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the supervisor's address for readiness (sd_notify(3)), None without one."""
    env = os.environ if environment is None else environment
    return env.get("NOTIFY_SOCKET") or None


def watchdog_limit_s(environment: Mapping[str, str] | None = None) -> float | None:
    """Return how long the supervisor bears silence (sd_watchdog_enabled(3)), None for ever."""
    env = os.environ if environment is None else environment
    limit, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not limit.isdecimal() or pid not in ("", str(os.getpid())):
        return None
    return int(limit) / 1e6 or None


def trace_settings_from_environment(
    environment: Mapping[str, str] | None = None,
) -> TraceSettings:
    """Return the exporters of spans; none if the environment names none."""
    env = os.environ if environment is None else environment
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TraceSettings()
    named = env.get("OTEL_TRACES_EXPORTER", "")
    has_endpoint = any(
        env.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", _OTLP_TRACES + "ENDPOINT")
    )
    if not named.strip() and has_endpoint:
        named = "otlp"
    words = [word.strip() for word in named.split(",")]
    protocol = env.get(_OTLP_TRACES + "PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    attributes = env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return TraceSettings(
        file=env.get("BLIMP_TRACE_FILE", ""),
        exporters=tuple(word for word in words if word not in ("", "none")),
        protocol=protocol or "",
        is_named=bool(env.get("OTEL_SERVICE_NAME")) or "service.name=" in attributes,
    )


def vehicle_name(name: str, *, where: str) -> str:
    """Return `name` if it can name a ship, a queue and a file; else raise ConfigError."""
    if not re.fullmatch(VEHICLE_PATTERN, name):
        raise ConfigError(
            f"{where}: {name[:40]!r} cannot name a ship: 1 to 32 of a-z, 0-9, _ and -, "
            "beginning with a letter or digit"
        )
    return name
