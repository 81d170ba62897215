"""`blimp sim truth|hold`: asks and tells the world of a running simulated ship."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blimp.config import registry_dir
from blimp.errors import ConfigError
from blimp.link.paths import RuntimePaths
from blimp.link.registry import Registration
from blimp.rotation import euler
from blimp.sim.remote import RemoteWorld
from ground_station.discover import running_stacks


def ask_truth(runtime_dir: Path | None) -> dict[str, Any]:
    """Return state and outputs of the ship whose sockets are in `runtime_dir`.

    None: the only stack that this user runs. Raises ConfigError if there is none, if there are
    several, or if no world answers.
    """
    with _world(runtime_dir) as world:
        report = world.report()
    state = report.state
    return {
        "t_s": state.t_s,
        "position_ned_m": list(state.position_ned_m),
        "velocity_ned_mps": list(state.velocity_ned_mps),
        "altitude_m": state.altitude_m,
        "attitude_rad": dict(zip(("roll", "pitch", "yaw"), euler(state.attitude), strict=True)),
        "on_ground": state.on_ground,
        "actuators": report.outputs,
        "outputs_safe": report.outputs_safe,
    }


def hold(runtime_dir: Path | None, *, held: bool) -> None:
    """Have a person hold the ship where it is, or let go of it. Raises as `ask_truth` does."""
    with _world(runtime_dir) as world:
        world.hold(held)


@contextmanager
def _world(runtime_dir: Path | None) -> Iterator[RemoteWorld]:
    paths = RuntimePaths(runtime_dir or Path(only_stack().runtime_dir))
    paths.check()
    try:
        with RemoteWorld(paths.world) as world:
            yield world
    except OSError as error:
        raise ConfigError(f"no simulated world answers at {paths.world}") from error


def only_stack(runtime_dir: Path | None = None) -> Registration:
    """Return the only stack that this user runs, in `runtime_dir` if it is given.

    Raises ConfigError if there is none, or if there are several.
    """
    stacks = running_stacks(registry_dir())
    if runtime_dir is not None:
        stacks = [stack for stack in stacks if Path(stack.runtime_dir) == runtime_dir.absolute()]
    if len(stacks) == 1:
        return stacks[0]
    if not stacks:
        raise ConfigError("no simulated ship runs on this machine: start one with blimp up --sim")
    known = ", ".join(f"{stack.vehicle} in {stack.runtime_dir}" for stack in stacks)
    raise ConfigError(f"{len(stacks)} ships run on this machine ({known}): give --runtime-dir")
