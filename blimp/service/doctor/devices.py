"""Checks of what hangs on the buses, against the airframe's table.

A bus has one owner. If a flight process runs, it is asked; else its place is taken while the
buses are in use here.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from blimp.airframe import Device
from blimp.control.arming import where
from blimp.errors import BoardError, BusError
from blimp.hardware.board import check, open_board, wiring_of
from blimp.hardware.linux import LinuxBuses, scan_i2c
from blimp.link.mailbox import MailboxServer
from blimp.service.airframes.check import check as judge
from blimp.service.doctor import ports
from blimp.service.doctor.computer import Computer, Finding, error, ok, warning
from blimp.sim.remote import RemoteWorld

START_S = 2.0  # devices have this long to start; the slowest boots in 0.7 s, and a Pi may be busy
_CYCLE_S = 0.01
_MEND_FIRST = "mend the bus first: see i2c"
_NO_WORLD = error("no simulated ship runs", "start one with: blimp up --sim")


def clashes(computer: Computer) -> Iterator[Finding]:
    try:
        check(computer.airframe)
    except BoardError as problem:
        yield error(str(problem), "change the address, pin or port in the airframe's file")
    else:
        yield ok(f"none among {len(computer.airframe.device)} devices")


def airworthy(computer: Computer) -> Iterator[Finding]:
    """Whether the ship that its file describes can fly."""
    cure = "mend the airframe's file; see: blimp airframe check"
    report = judge(computer.airframe)
    for text in report.errors:
        yield error(text, cure)
    for text in report.warnings:
        yield warning(text, cure)
    if report.ok and not report.warnings:
        yield ok(f"{report.name} can fly")


def bus_scan(computer: Computer) -> Iterator[Finding]:
    """Who answers on the buses, by address alone."""
    if computer.snapshot is not None:
        yield ok("not scanned: the flight process runs and owns the buses")
        return
    if not _has_world(computer):
        yield _NO_WORLD
        return
    with ownership(computer):
        for bus in sorted({row.bus for row in computer.rows("i2c")}):
            yield from _scan(computer, bus)


def _scan(computer: Computer, bus: str) -> Iterator[Finding]:
    if not _opens(computer, f"/dev/{bus}"):
        yield error(f"{bus}: not scanned", _MEND_FIRST)
        return
    try:
        answering = set(scan_i2c(bus))
    except BusError as failed:
        yield error(str(failed), _MEND_FIRST)
        return
    rows = [row for row in computer.rows("i2c") if row.bus == bus]
    for row in rows:
        if row.address not in answering:
            yield _problem(row, "does not answer", f"check power, SDA and SCL at {where(row)}")
    known = {row.address for row in rows}
    known |= {a for row in rows for a in wiring_of(row.chip).shared_addresses}
    for address in sorted(answering - known):
        yield warning(
            f"{bus} 0x{address:02x} answers, and is in no row of the airframe's table",
            "add its row, or take it off the bus",
        )
    if all(row.address in answering for row in rows):
        yield ok(f"{bus}: {', '.join(f'{row.name} 0x{row.address:02x}' for row in rows)}")


def identities(computer: Computer) -> Iterator[Finding]:
    """Whether each chip is what the table says, starts, and measures."""
    if computer.snapshot is not None:
        states = {
            name: "" if status.healthy else status.error or "no answer"
            for name, status in computer.snapshot.sensors.items()
        }
    elif not _has_world(computer):
        yield _NO_WORLD
        return
    else:
        with ownership(computer):
            states = _started(computer)
    sick = [row for row in computer.airframe.device if states.get(row.name)]
    unasked: dict[str, list[Device]] = {}  # by the place that is missing
    for row in sick:
        place = _missing(computer, row)
        if place:
            unasked.setdefault(place, []).append(row)
        else:
            yield _problem(row, states[row.name], f"check the chip and its wiring at {where(row)}")
    if unasked:
        yield _not_asked(unasked)
    if not sick:
        yield ok(f"{len(states)} devices are what the table says, and measure")


def _not_asked(unasked: dict[str, list[Device]]) -> Finding:
    """One finding for all devices of missing buses: a bus's own check has said what it lacks."""
    rows = [row for some in unasked.values() for row in some]
    checks = dict.fromkeys(row.bus.partition("-")[0] for row in rows)
    finding = error if any(map(_must_be_there, rows)) else warning
    count = f"{len(rows)} device{'s' * (len(rows) != 1)}"
    return finding(
        f"{count} not asked: no {', '.join(unasked)}",
        f"mend the buses first: see {', '.join(checks)}",
    )


def _missing(computer: Computer, row: Device) -> str:
    """Return the bus, port or library that a device hangs on if this computer lacks it, or ""."""
    if row.bus == "gpio":
        unusable = any(finding.state == "error" for finding in ports.gpio(computer))
        return "GPIO" if unusable and not computer.simulated else ""
    path = row.port or (f"/dev/{row.bus}" if row.bus.startswith("i2c") else "")
    return path if path and not _opens(computer, path) else ""


def _opens(computer: Computer, path: str) -> bool:
    """Whether a bus can be opened here; beside a flight process, whether it is there."""
    if computer.simulated:
        return True
    found = computer.path(path)
    return found.exists() if computer.snapshot else os.access(found, os.R_OK | os.W_OK)


def _has_world(computer: Computer) -> bool:
    """Whether a simulated ship answers, if this is to be one."""
    if not computer.simulated:
        return True
    with RemoteWorld(computer.paths.world) as world:
        try:
            world.report()
        except OSError:
            return False
    return True


def _started(computer: Computer) -> dict[str, str]:
    """Start every device as the flight process does; return why each is not healthy."""
    clock = computer.clock
    with (
        LinuxBuses(clock=clock) as buses,
        open_board(computer.airframe, buses=buses, clock=clock) as board,
    ):
        until_s = clock.now_s() + max([START_S, *(device.start_s for device in board.devices)])
        while board.unhealthy and clock.now_s() < until_s:
            board.read(clock.now_s())
            clock.sleep_until(clock.now_s() + _CYCLE_S)
        return board.self_test()


@contextlib.contextmanager
def ownership(computer: Computer) -> Iterator[None]:
    """Keep a flight process from starting: it would find its mailbox taken."""
    if not computer.paths.directory.exists():
        yield
        return
    with contextlib.ExitStack() as stack:
        with _as_owner_of(computer.paths.directory):
            stack.enter_context(MailboxServer(path=computer.paths.flight, clock=computer.clock))
        yield


@contextlib.contextmanager
def _as_owner_of(directory: Path) -> Iterator[None]:
    """Make files as the owner of `directory` does, if this is root.

    The flight process must be able to see that they are in use, and root follows no link there.
    """
    about = directory.stat()
    if os.geteuid() != 0:
        yield
        return
    group = os.getegid()
    os.setegid(about.st_gid)
    os.seteuid(about.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def _problem(row: Device, why: str, cure: str) -> Finding:
    finding = error if _must_be_there(row) else warning
    return finding(f"{row.name} ({row.chip}): {why}", cure)


def _must_be_there(row: Device) -> bool:
    """Only what must be there keeps a ship on the ground; an output always must."""
    return bool(row.required or row.outputs)
