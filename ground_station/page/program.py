"""`blimp` of this machine, run as a person would: nothing of the ship is imported."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from blimp.errors import BlimpError
from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
from ground_station.discover import running_stacks
from ground_station.session import Session


class Here(NamedTuple):
    """The runtime directory of a ship on this machine."""

    directory: Path
    is_simulated: bool


def here(session: Session, vehicle: str) -> Here | None:
    """Return where a ship runs on this machine; None if it does not."""
    for stack in running_stacks(session.registry):
        if (stack.vehicle, stack.broker) == (vehicle, session.ship.broker):
            return Here(Path(stack.runtime_dir), is_simulated=True)
    if vehicle == session.ship.vehicle and RuntimePaths(ON_BOARD_DIR).airframe.exists():
        return Here(ON_BOARD_DIR, is_simulated=False)
    return None


def run_blimp(*words: str, within_s: float, key_file: Path | None = None) -> Any:
    """Run `blimp WORDS` and return the JSON that it prints. Raises BlimpError with its reason."""
    environment = dict(os.environ)
    if key_file is not None:
        environment["BLIMP_SIGNING_KEY_FILE"] = str(key_file)
    command = [sys.executable, "-m", "blimp", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=within_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise BlimpError(f"blimp {words[0]}: not done within {within_s:g} s") from None
    try:
        return msgspec.json.decode(done.stdout)
    except msgspec.DecodeError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1].removeprefix("blimp: ") if lines else f"status {done.returncode}"
        raise BlimpError(reason) from None
