"""`blimp doctor`: everything that must be right before a ship flies, each with its cure."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.clock import SystemClock
from blimp.errors import BlimpError, ConfigError
from blimp.link.paths import RuntimePaths
from blimp.link.registry import Registration
from blimp.service.compose import flown_airframe, machine
from blimp.service.computer.configuration import Configuration, read_configuration
from blimp.service.computer.systemd import FLIGHT
from blimp.service.doctor import devices, ports, services, system
from blimp.service.doctor.computer import Computer, Finding, error

Check = Callable[[Computer], Iterator[Finding]]


class Row(msgspec.Struct, frozen=True):
    """One check.

    real: it looks at a Pi's own devices, which a simulated ship does not use. on_board: it looks
    at files of a ship on board, which `blimp up` has none of.
    """

    name: str
    check: Check
    real: bool = False
    on_board: bool = False


# In the order in which a person mends things. A new check is one function and one row.
CHECKS = (
    Row("configuration", system.configuration, on_board=True),
    Row("interpreter", system.interpreter),
    Row("groups", ports.groups, real=True),
    Row("i2c", ports.i2c, real=True),
    Row("serial", ports.serial, real=True),
    Row("gpio", ports.gpio, real=True),
    Row("airframe", devices.airworthy),
    Row("clashes", devices.clashes),
    Row("bus scan", devices.bus_scan),
    Row("identities", devices.identities),
    Row("clock", system.clock),
    Row("broker", services.broker),
    Row("emergency stop", services.emergency),
    Row("camera", services.camera),
    Row("keys", services.keys),
    Row("units", services.units, on_board=True),
    Row("page", services.page, on_board=True),
    Row("power", system.power, real=True),
    Row("disk", system.disk),
    Row("jitter", system.jitter),
)


def examine(
    computer: Computer, *, progress: Callable[[float], object] = lambda _: None
) -> list[Finding]:
    """Run every check; what a check cannot find out is an error, too.

    progress: called with the share of the checks that is done, 0 to 1.
    """
    findings = []
    for number, row in enumerate(CHECKS):
        progress(number / len(CHECKS))
        if (row.real and computer.simulated) or (row.on_board and computer.is_of_a_stack):
            continue
        try:
            found = list(row.check(computer))
        except (BlimpError, OSError) as failed:
            found = [error(f"not known: {failed}", _cure())]
        findings += [msgspec.structs.replace(finding, check=row.name) for finding in found]
    return findings


def _cure() -> str:
    if os.geteuid() != 0:
        return "run it as root: sudo blimp doctor"
    return f"journalctl -u {FLIGHT}"


def diagnose(
    *,
    config_path: Path,
    runtime_dir: Path,
    simulated: bool,
    stack: Registration | None = None,
    progress: Callable[[float], object] = lambda _: None,
) -> list[Finding]:
    """Examine the computer that this runs on; in a simulation with a simulated ship's chips.

    stack: that of `blimp up`, whose ship and broker are asked for instead of a configuration file.
    """
    problem = ""
    clock, paths = SystemClock(), RuntimePaths(runtime_dir)
    paths.check()
    try:
        if stack is None:
            configuration = read_configuration(config_path)
        else:
            configuration = Configuration(vehicle=stack.vehicle, broker=stack.broker)
    except ConfigError as failed:
        configuration, problem = Configuration(), str(failed)
    flown = None if stack is None else flown_airframe(paths)
    with machine(simulated=simulated, paths=paths, clock=clock):
        computer = Computer(
            airframe=flown or airframes.load(configuration.airframe),
            configuration=configuration,
            config_path=config_path,
            config_problem=problem,
            paths=paths,
            clock=clock,
            simulated=simulated,
            is_of_a_stack=stack is not None,
        )
        return examine(computer, progress=progress)
