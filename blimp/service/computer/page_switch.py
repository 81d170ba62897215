"""The ship's own page, on and off: its key is the switch.

blimp-page.service is installed with the others, and starts only if there is a key: off is no key.
"""

import re
import secrets
from pathlib import Path

from blimp.distribution import needing
from blimp.errors import ConfigError
from blimp.service.computer.systemd import PAGE, UNIT_DIR, run_commands
from blimp.service.files import write_whole

NAME = "page.key"  # beside the configuration, and of the unit's credential
KEY_BYTES = 24  # as many as every other token of the page
MODE = 0o600
_KEY = re.compile(r"[\w-]{32}", re.ASCII)


def key_path(config_path: Path) -> Path:
    return config_path.with_name(NAME)


def read_key(path: Path) -> str:
    """Return a page's key. Raises ConfigError, which never shows it."""
    try:
        key = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text of ASCII"
        raise ConfigError(f"the page's key {path}: {why}") from error
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"the page's key {path}: {len(key)} characters, must be 32 of A-Z, a-z, 0-9, _ and -: "
            "sudo blimp page on --new-key"
        )
    return key


def switch_on(config_path: Path, *, new_key: bool = False) -> str:
    """Make the key if there is none, start the page, and return the key. Needs root.

    new_key: the old one is shut out. Raises ConfigError without the units or the
    extra `page`, BlimpError if systemd could not start it.
    """
    if not (UNIT_DIR / PAGE).exists():
        raise ConfigError(f"no {UNIT_DIR / PAGE}: sudo blimp install-service, then again")
    with needing("page", "the page needs"):
        import ground_station.page.server  # noqa: F401
    path = key_path(config_path)
    is_new = new_key or not path.exists()
    if is_new:
        write_whole(path, f"{secrets.token_urlsafe(KEY_BYTES)}\n", mode=MODE)
    key = read_key(path)
    # A page that runs goes on: phones that look at it are not cut off to show the code again.
    run_commands([f"systemctl {'restart' if is_new else 'start'} {PAGE}"])
    return key


def switch_off(config_path: Path) -> None:
    """Remove the key and stop the page. Needs root; what is off already stays so."""
    key_path(config_path).unlink(missing_ok=True)
    if (UNIT_DIR / PAGE).exists():
        run_commands([f"systemctl stop {PAGE}"])
