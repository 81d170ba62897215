"""The bus against the airframe's table, on the simulated chips below the unchanged drivers."""

import os
from collections.abc import Iterator

import msgspec
import pytest

from blimp.airframe import Airframe
from blimp.clock import SystemClock
from blimp.errors import BlimpError
from blimp.link.mailbox import MailboxServer
from blimp.link.paths import RuntimePaths
from blimp.service.doctor import CHECKS, Check, devices, examine, system
from blimp.service.doctor.computer import Computer
from blimp.ship import Lockstep
from blimp.sim.remote import RemoteWorld
from blimp.sim.seam import linux_devices
from blimp.types import Snapshot
from tests.directory import socket_directory
from tests.needs import needs_root
from tests.repeating import repeating
from tests.service.doctor.pi import TWIN, Pi, worst
from tests.sim.served import served_world


@pytest.fixture
def world() -> Iterator[RemoteWorld]:
    clock = SystemClock()
    with served_world() as path, RemoteWorld(path) as world, linux_devices(world, clock=clock):
        yield world


def without(name: str) -> Airframe:
    return msgspec.structs.replace(TWIN, device=tuple(r for r in TWIN.device if r.name != name))


def test_a_ship_as_its_table_says(world: RemoteWorld, pi: Pi) -> None:
    computer = pi.computer()
    (scan,) = devices.bus_scan(computer)
    assert scan.found == ("i2c-1: servos 0x40, power 0x41, imu 0x68, baro 0x76, ranger 0x10")
    assert [f.found for f in devices.identities(computer)] == [
        "10 devices are what the table says, and measure"
    ]
    assert [f.found for f in devices.clashes(computer)] == ["none among 10 devices"]


def test_a_chip_that_does_not_answer(world: RemoteWorld, pi: Pi) -> None:
    world.fault("baro", "no_answer")
    (finding,) = devices.bus_scan(pi.computer())
    assert (finding.state, finding.found) == ("error", "baro (bmp280): does not answer")
    assert finding.cure == "check power, SDA and SCL at i2c-1 0x76"
    assert worst(list(devices.identities(pi.computer()))).found.startswith("baro (bmp280): i2c-1")


def test_a_chip_that_is_not_required_is_a_warning(world: RemoteWorld, pi: Pi) -> None:
    world.fault("sonar", "no_answer")
    (finding,) = devices.identities(pi.computer())
    assert (finding.state, finding.found.startswith("sonar (hcsr04): ")) == ("warning", True)


def test_a_chip_in_no_row(world: RemoteWorld, pi: Pi) -> None:
    findings = list(devices.bus_scan(pi.computer(ship=without("power"))))
    assert [(f.state, f.found) for f in findings if f.state != "ok"] == [
        ("warning", "i2c-1 0x41 answers, and is in no row of the airframe's table")
    ]


# --- beside a flight process -----------------------------------------------------------------


def flown(*, sick: str = "") -> Snapshot:
    with Lockstep(airframe="twin", seed=1) as ship:
        if sick:
            ship.fault(sick, "no_answer")
            ship.step(3.0)
        return ship.snapshot()


def beside(snapshot: Snapshot, pi: Pi, check: Check) -> list[str]:
    """Run a check while a flight process answers with `snapshot`."""
    with socket_directory() as directory:
        paths = RuntimePaths(directory)
        with MailboxServer(path=paths.flight, clock=SystemClock()) as server:

            def fly() -> None:
                server.receive()
                server.publish(snapshot)

            with repeating(fly, period_s=0.02):
                return [f"{f.state}: {f.found}" for f in check(pi.computer(paths=paths))]


def test_a_flight_process_is_asked_and_its_buses_left_alone(pi: Pi) -> None:
    assert beside(flown(), pi, devices.identities) == [
        "ok: 10 devices are what the table says, and measure"
    ]
    assert beside(flown(), pi, devices.bus_scan) == [
        "ok: not scanned: the flight process runs and owns the buses"
    ]
    (sick,) = beside(flown(sick="imu"), pi, devices.identities)
    assert sick.startswith("error: imu (mpu6050): ")
    (late,) = beside(flown(), pi, system.jitter)
    assert "of the running loop" in late
    snapshot = flown()
    loop = msgspec.structs.replace(snapshot.loop, refused=("mlockall: no",))
    refused, _ = beside(msgspec.structs.replace(snapshot, loop=loop), pi, system.jitter)
    assert refused == "warning: the kernel refuses the loop: mlockall: no"


def test_no_flight_process_starts_while_the_buses_are_in_use(world: RemoteWorld, pi: Pi) -> None:
    with socket_directory() as directory:
        paths = RuntimePaths(directory)
        with (
            devices.ownership(pi.computer(paths=paths)),
            pytest.raises(BlimpError, match="another process serves it"),
        ):
            MailboxServer(path=paths.flight, clock=SystemClock())
        assert list(directory.iterdir()) == []


def test_a_flight_process_that_does_not_answer_is_an_error(pi: Pi) -> None:
    with socket_directory() as directory:
        paths = RuntimePaths(directory)
        with MailboxServer(path=paths.flight, clock=SystemClock()):
            computer = pi.computer(paths=paths)
            found = {f.check: f for f in examine(computer)}
    assert "does not answer" in found["bus scan"].found
    assert found["identities"].state == "error"


def test_every_check_has_a_finding_and_every_problem_a_cure(pi: Pi) -> None:
    findings = examine(pi.computer())
    rows = [row for row in CHECKS if row.name != "camera"]  # the ship has none
    assert {finding.check for finding in findings} == {row.name for row in rows}
    assert all(bool(f.cure) == (f.state != "ok") for f in findings)
    simulated: Computer = pi.computer(simulated=True)
    assert {f.check for f in examine(simulated)} == {r.name for r in rows if not r.real}


def test_a_bus_that_hangs_is_named_at_once(world: RemoteWorld, pi: Pi) -> None:
    world.fault("imu", "bus_stuck")
    (finding,) = devices.bus_scan(pi.computer())
    assert (finding.state, finding.cure) == ("error", "mend the bus first: see i2c")
    assert finding.found.startswith("i2c-1 address 0x08: scan: ")


def test_a_chip_that_is_another_one_in_truth(world: RemoteWorld, pi: Pi) -> None:
    world.fault("imu", "wrong_identity")
    finding = worst(list(devices.identities(pi.computer())))
    assert finding.found.startswith("imu (mpu6050): ")
    assert "expected 0x68" in finding.found


# --- a computer without the buses ------------------------------------------------------------


def test_devices_of_missing_buses_are_one_finding(pi: Pi) -> None:
    for device in ("i2c-1", "ttyAMA0", "ttyAMA1"):
        pi.remove(f"dev/{device}")
    computer = pi.computer(library={})
    (scan,) = devices.bus_scan(computer)
    assert (scan.state, scan.found) == ("error", "i2c-1: not scanned")
    (finding,) = devices.identities(computer)
    assert finding.state == "error"
    assert finding.found == "10 devices not asked: no /dev/i2c-1, GPIO, /dev/ttyAMA0, /dev/ttyAMA1"
    assert finding.cure == "mend the buses first: see i2c, gpio, serial"


@needs_root("needs a second user")
def test_root_keeps_a_flight_process_of_another_user_from_starting_as_that_user(pi: Pi) -> None:
    """With sockets of root's, that user could not see whether they are in use."""
    with socket_directory() as directory:
        os.chown(directory, 61_001, 61_001)
        with devices.ownership(pi.computer(paths=RuntimePaths(directory))):
            assert os.geteuid() == 0
            assert {path.stat().st_uid for path in directory.iterdir()} == {61_001}
        assert list(directory.iterdir()) == []
