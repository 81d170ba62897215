"""Environment variables. They are read here and nowhere else.

| variable                 | meaning                                                              |
|--------------------------|----------------------------------------------------------------------|
| `BLIMP_BROKER_URL`       | the broker, if the command line names none                           |
| `BLIMP_VEHICLE`          | the ship, if the command line names none                             |
| `BLIMP_SIGNING_KEY`      | signs commands; others are refused; several keys, separated by space |
| `BLIMP_SIGNING_KEY_FILE` | a file with these keys instead; only its owner may read it           |
| `BLIMP_REMOTE_CONTROL`   | what Celery clients may do to a ship: `inspect`, `all` or `off`      |
| `XDG_STATE_HOME`         | parent of `blimp/`: this user's pilot grants; `~/.local/state`       |
| `XDG_RUNTIME_DIR`        | parent of the run registry; `/tmp` if it is not set                  |
| `BLIMP_TRACE_FILE`       | gets a line of JSON for each span                                    |
| `OTEL_*`                 | OpenTelemetry's own: the exporters of spans (see docs/observe.md)    |
| `NOTIFY_SOCKET`          | the socket on which systemd or `blimp up` receives readiness         |
| `WATCHDOG_USEC`          | how long either of them waits for a heartbeat of the flight process  |
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from blimp.queue.observability.settings import TraceSettings

_OTLP_TRACES = "OTEL_EXPORTER_OTLP_TRACES_"
VEHICLE_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"


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
    """Return the keys of `BLIMP_SIGNING_KEY`, the signing one first; None if there is none.

    Raises ConfigError if `BLIMP_SIGNING_KEY_FILE` is set too, or names a file without keys.
    """
    env = os.environ if environment is None else environment
    keys = tuple(env.get("BLIMP_SIGNING_KEY", "").split()) or None
    file = env.get("BLIMP_SIGNING_KEY_FILE")
    if not file:
        return keys
    if keys is not None:
        raise ConfigError("both BLIMP_SIGNING_KEY and BLIMP_SIGNING_KEY_FILE are set: unset one")
    return read_signing_keys(Path(file))


def read_signing_keys(path: Path) -> tuple[str, ...]:
    """Return the keys in a file, separated by space or line, the signing one first.

    Raises ConfigError if there is none, or if other users may read them.
    """
    try:
        keys = tuple(path.read_text(encoding="ascii").split())
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text of ASCII"
        raise ConfigError(f"signing key file {path}: {why}") from None
    if mode & 0o007:
        raise ConfigError(f"signing key file {path}: every user may read it: chmod 600 {path}")
    if not keys:
        raise ConfigError(f"signing key file {path}: there is no key in it")
    return keys


def remote_control_from_environment(environment: Mapping[str, str] | None = None) -> str:
    """Return `BLIMP_REMOTE_CONTROL`: what a ship's worker does for Celery's remote control.

    If it is unset, the worker answers questions and refuses unsigned commands.
    """
    env = os.environ if environment is None else environment
    return env.get("BLIMP_REMOTE_CONTROL") or "inspect"


def registry_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Return the run registry: `<registry>/<vehicle>.json` for every running stack."""
    env = os.environ if environment is None else environment
    return Path(env.get("XDG_RUNTIME_DIR") or "/tmp") / f"blimp-{os.getuid()}"


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
