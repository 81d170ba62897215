"""Checks of the computer itself: interpreter, clock, power, disk, and how punctual it is."""

import os
import platform
import shlex
import sys
from collections.abc import Iterator
from math import ceil

from blimp.link.paths import CONFIG_PATH
from blimp.service.airframes.check import retired
from blimp.service.doctor.computer import Computer, Finding, error, ok, warning

FREE_MB = (100, 500)  # below the first an error, below the second a warning
JITTER_MS = 2.0  # of 99 in 100 wake-ups; a fifth of a cycle at 100 Hz
_PERIOD_S, _WAKE_UPS = 0.003, 100
_THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"
_UNDER_VOLTAGE, _WAS_UNDER_VOLTAGE = 1 << 0, 1 << 16  # vcgencmd get_throttled


def configuration(computer: Computer) -> Iterator[Finding]:
    airframe = computer.airframe
    if computer.config_problem:
        yield error(computer.config_problem, _cure_of(computer))
    else:
        yield ok(f"{computer.config_path}: airframe {airframe.name}")
        path = computer.configuration.airframe
        for text in retired(path):
            yield warning(text, f"sudo nano {path}")


def _cure_of(computer: Computer) -> str:
    """Return what mends a configuration that could not be read; `init` replaces none unasked."""
    path = computer.config_path
    option = "" if path == CONFIG_PATH else f" --config {shlex.quote(str(path))}"
    try:
        computer.path(str(path)).open("rb").close()
    except PermissionError:
        return f"run it as root: sudo blimp doctor{option}"
    except OSError:
        return f"write one: sudo blimp init{option}"
    return f"correct it, or write it again: sudo blimp init{option} --force"


def interpreter(_: Computer) -> Iterator[Finding]:
    bits = 64 if sys.maxsize > 2**32 else 32  # the userland's: a 64-bit kernel may run a 32-bit one
    name = f"{platform.python_implementation()} {platform.python_version()}, {bits} bits"
    if bits < 64:
        yield warning(
            f"{name}: not supported, and tried nowhere",
            "write the card again with the 64-bit Raspberry Pi OS Lite (see docs/pi.md)",
        )
    else:
        yield ok(f"{name}, {platform.machine()}")


def clock(computer: Computer) -> Iterator[Finding]:
    if computer.synchronised():
        yield ok("synchronised")
    else:
        yield warning(
            "not synchronised: logs will have the wrong time",
            "join a network with NTP, or add a clock chip; then look at: timedatectl",
        )


def power(computer: Computer) -> Iterator[Finding]:
    """The firmware's flags: a Pi whose supply sags slows down, and then resets."""
    text = computer.text(_THROTTLED)
    if not text:
        yield warning("the firmware does not say", "use Raspberry Pi OS, which has the flag")
        return
    flags = int(text, 16)
    cure = "use a supply or regulator of 5.1 V and 3 A, and short thick wires"
    if flags & _UNDER_VOLTAGE:
        yield error("under-voltage now", cure)
    elif flags & _WAS_UNDER_VOLTAGE:
        yield warning("under-voltage since the boot", cure)
    else:
        yield ok("no under-voltage since the boot")


def disk(computer: Computer) -> Iterator[Finding]:
    place = os.statvfs(computer.path("/var"))
    free_mb = place.f_bavail * place.f_frsize // 1_000_000
    cure = "delete old logs and packages: sudo journalctl --vacuum-size=50M; sudo apt clean"
    if free_mb < FREE_MB[0]:
        yield error(f"{free_mb} MB free, {FREE_MB[0]} MB are needed", cure)
    elif free_mb < FREE_MB[1]:
        yield warning(f"{free_mb} MB free, {FREE_MB[1]} MB are better", cure)
    else:
        yield ok(f"{free_mb} MB free")


def jitter(computer: Computer) -> Iterator[Finding]:
    """How late this computer wakes a process: the running loop's own figure, or measured."""
    if computer.snapshot is not None:
        loop = computer.snapshot.loop
        late_ms = loop.wakeup_error_ms.get("p99", 0.0)
        if loop.refused:
            yield warning(
                f"the kernel refuses the loop: {', '.join(loop.refused)}",
                "start it by its unit: sudo blimp install-service",
            )
        where = f"of the running loop, {loop.overruns} overruns in {loop.cycles} cycles"
    else:
        late_ms = _wake_up_p99_ms(computer)
        where = f"of {_WAKE_UPS} wake-ups without a real-time priority"
    text = f"99 % within {late_ms:.2f} ms {where}"
    if late_ms > JITTER_MS:
        yield warning(
            f"{text}; {JITTER_MS:g} ms are wanted",
            "end other programs, and set the governor: "
            "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
        )
    else:
        yield ok(text)


def _wake_up_p99_ms(computer: Computer) -> float:
    late_s = []
    deadline_s = computer.clock.now_s()
    for _ in range(_WAKE_UPS):
        deadline_s += _PERIOD_S
        computer.clock.sleep_until(deadline_s)
        late_s.append(computer.clock.now_s() - deadline_s)
    return 1000.0 * sorted(late_s)[ceil(0.99 * _WAKE_UPS) - 1]
