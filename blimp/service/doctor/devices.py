"""Checks of what hangs on the buses, against the airframe's table.

A bus has one owner. If a flight process runs, it is asked; else its place is taken while the
buses are in use here.
"""

import contextlib
from collections.abc import Iterator

from blimp.airframe import Device
from blimp.control.arming import where
from blimp.errors import BoardError, BusError
from blimp.hardware.board import CHIPS, check, open_board
from blimp.hardware.linux import LinuxBuses, scan_i2c
from blimp.link.mailbox import MailboxServer
from blimp.service.doctor.computer import Computer, Finding, error, ok, warning

START_S = 1.0  # devices have this long to start; the slowest one boots in 0.7 s
_CYCLE_S = 0.01


def clashes(computer: Computer) -> Iterator[Finding]:
    try:
        check(computer.airframe)
    except BoardError as problem:
        yield error(str(problem), "change the address, pin or port in the airframe's file")
    else:
        yield ok(f"none among {len(computer.airframe.device)} devices")


def bus_scan(computer: Computer) -> Iterator[Finding]:
    """Who answers on the buses, by address alone."""
    if computer.snapshot is not None:
        yield ok("not scanned: the flight process runs and owns the buses")
        return
    with ownership(computer):
        for bus in sorted({row.bus for row in computer.rows("i2c")}):
            yield from _scan(computer, bus)


def _scan(computer: Computer, bus: str) -> Iterator[Finding]:
    try:
        answering = set(scan_i2c(bus))
    except BusError as failed:
        yield error(str(failed), "mend the bus first: see i2c")
        return
    rows = [row for row in computer.rows("i2c") if row.bus == bus]
    for row in rows:
        if row.address not in answering:
            yield _problem(row, "does not answer", f"check power, SDA and SCL at {where(row)}")
    known = {row.address for row in rows}
    known |= {a for row in rows for a in CHIPS[row.chip].WIRING.shared_addresses}
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
    else:
        with ownership(computer):
            states = _started(computer)
    sick = 0
    for row in computer.airframe.device:
        why = states.get(row.name, "")
        if why:
            sick += 1
            yield _problem(row, why, f"check the chip and its wiring at {where(row)}")
    if not sick:
        yield ok(f"{len(states)} devices are what the table says, and measure")


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
    with MailboxServer(path=computer.paths.flight, clock=computer.clock):
        yield


def _problem(row: Device, why: str, cure: str) -> Finding:
    """Only what must be there keeps a ship on the ground; an output always must."""
    finding = error if row.required or row.outputs else warning
    return finding(f"{row.name} ({row.chip}): {why}", cure)
