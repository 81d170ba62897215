"""`blimp doctor`: everything that must be right before a ship flies, each with its cure."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.clock import SystemClock
from blimp.errors import BlimpError, ConfigError
from blimp.link.paths import RuntimePaths
from blimp.service.compose import machine
from blimp.service.configuration import Configuration, read_configuration
from blimp.service.doctor import devices, ports, services, system
from blimp.service.doctor.computer import Computer, Finding, error

Check = Callable[[Computer], Iterator[Finding]]


class Row(msgspec.Struct, frozen=True):
    """One check. `real`: it looks at a Pi's own devices, which a simulated ship does not use."""

    name: str
    check: Check
    real: bool = False


# In the order in which a person mends things. A new check is one function and one row.
CHECKS = (
    Row("configuration", system.configuration),
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
    Row("keys", services.keys),
    Row("units", services.units),
    Row("power", system.power, real=True),
    Row("disk", system.disk),
    Row("jitter", system.jitter),
)


def examine(computer: Computer) -> list[Finding]:
    """Run every check; what a check cannot find out is an error, too."""
    findings = []
    for row in CHECKS:
        if row.real and computer.simulated:
            continue
        try:
            found = list(row.check(computer))
        except (BlimpError, OSError) as failed:
            found = [error(f"not known: {failed}", "run it as root: sudo blimp doctor")]
        findings += [msgspec.structs.replace(finding, check=row.name) for finding in found]
    return findings


def diagnose(*, config_path: Path, runtime_dir: Path, simulated: bool) -> list[Finding]:
    """Examine the computer that this runs on; in a simulation with a simulated ship's chips."""
    problem = ""
    try:
        configuration = read_configuration(config_path)
    except ConfigError as failed:
        configuration, problem = Configuration(), str(failed)
    clock, paths = SystemClock(), RuntimePaths(runtime_dir)
    paths.check()
    with machine(simulated=simulated, paths=paths, clock=clock):
        computer = Computer(
            airframe=airframes.load(configuration.airframe),
            configuration=configuration,
            config_path=config_path,
            config_problem=problem,
            paths=paths,
            clock=clock,
            simulated=simulated,
        )
        return examine(computer)
