"""Checks of the computer's own ends of the buses: rights, speed, port, library."""

from collections.abc import Iterator
from pathlib import Path

from blimp.hardware.board import UART_PINS
from blimp.service.doctor.computer import FLIGHT_UNIT, Computer, Finding, error, ok, warning
from blimp.service.realtime import i2c_speed_hz

BUS_HZ = 400_000
CONFIG_TXT = "/boot/firmware/config.txt"
# Raspberry Pi OS's udev rules
_GROUPS = {"i2c": "i2c", "spi": "spi", "gpio": "gpio", "pwm": "gpio", "serial": "dialout"}
_NEEDS_LGPIO = ("Raspberry Pi 5", "Raspberry Pi Compute Module 5")  # and the 500: RP1's pins


def groups(computer: Computer) -> Iterator[Finding]:
    """Whether the flight process may open what the airframe needs."""
    if computer.user == "root":
        yield ok("root")
        return
    needed = {group for kind, group in _GROUPS.items() if computer.rows(kind)}
    lines = [line.split(":") for line in computer.text("/etc/group").splitlines()]
    known = {fields[0]: fields[-1].split(",") for fields in lines}
    unit = computer.text(FLIGHT_UNIT)
    given = [line for line in unit.splitlines() if line.startswith("SupplementaryGroups=")]
    of_unit = " ".join(given).replace("SupplementaryGroups=", "").split()
    missing = [
        group
        for group in sorted(needed)
        if group not in known or (computer.user not in known[group] and group not in of_unit)
    ]
    if missing:
        yield error(
            f"{computer.user} is not in {', '.join(missing)}",
            f"sudo usermod -aG {','.join(missing)} {computer.user}, then log in again",
        )
    else:
        yield ok(f"{computer.user}: {', '.join(sorted(needed)) or 'none needed'}")


def i2c(computer: Computer) -> Iterator[Finding]:
    for bus in sorted({row.bus for row in computer.rows("i2c")}):
        if not computer.path(f"/dev/{bus}").exists():
            yield error(f"no /dev/{bus}", "sudo raspi-config nonint do_i2c 0, then reboot")
            continue
        speed_hz = i2c_speed_hz(bus, computer.path("/"))
        cure = f"add  dtparam=i2c_arm=on,i2c_arm_baudrate={BUS_HZ}  to {CONFIG_TXT}, then reboot"
        if not speed_hz:
            yield warning(f"{bus}: its speed is not known", cure)
        elif speed_hz < BUS_HZ:
            yield warning(f"{bus}: {speed_hz // 1000} kHz, {BUS_HZ // 1000} are wanted", cure)
        else:
            yield ok(f"{bus}: {speed_hz // 1000} kHz")


def serial(computer: Computer) -> Iterator[Finding]:
    consoles = [
        word.removeprefix("console=").partition(",")[0]
        for word in computer.text("/proc/cmdline").split()
        if word.startswith("console=")
    ]
    for row in computer.rows("serial"):
        port = computer.path(row.port)
        names = {Path(row.port).name, port.resolve().name}
        if not port.exists():
            finding = error if row.required else warning
            cure = "sudo raspi-config nonint do_serial_hw 0, then reboot"
            if row.port not in UART_PINS:  # a second one
                cure = (
                    f"add  dtoverlay=uart3  (on a Pi 5: uart2-pi5) to {CONFIG_TXT}, then reboot; "
                    "see ls /dev/ttyAMA*"
                )
            yield finding(f"{row.name}: no {row.port}", cure)
        elif names & set(consoles):
            yield error(
                f"{row.name}: {row.port} is the console of the system",
                "sudo raspi-config nonint do_serial_cons 1, then reboot",
            )
        else:
            yield ok(f"{row.name}: {row.port}")


def gpio(computer: Computer) -> Iterator[Finding]:
    """Whether RPi.GPIO's interface is there in the form that this Pi needs."""
    if not computer.rows("gpio"):
        yield ok("not used")
        return
    if not computer.model:
        yield error("this computer is no Raspberry Pi", "for a simulated ship: blimp doctor --sim")
        return
    old, new = computer.version_of("RPi.GPIO"), computer.version_of("rpi-lgpio")
    cure = "pip uninstall RPi.GPIO; sudo apt install python3-rpi-lgpio (see docs/pi.md)"
    if old and new:
        yield error("RPi.GPIO and rpi-lgpio are both installed, in one place", cure)
    elif new:
        yield ok(f"{computer.model}: rpi-lgpio {new}")
    elif old and computer.model.startswith(_NEEDS_LGPIO):
        yield error(f"{computer.model}: RPi.GPIO {old} does not know its pins", cure)
    elif old:
        yield ok(f"{computer.model}: RPi.GPIO {old}")
    else:
        yield error(f"{computer.model}: neither rpi-lgpio nor RPi.GPIO is installed", cure)
