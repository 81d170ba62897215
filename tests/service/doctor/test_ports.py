"""Rights, speed, ports and library, on the files of a Pi."""

import pytest

from blimp.service.doctor import Check, ports
from tests.service.doctor.pi import LIBRARY, SPEED, UNIT, Pi, worst


@pytest.fixture
def pi(pi: Pi) -> Pi:
    pi.write(UNIT, "[Service]\nUser=pi\n")
    return pi


def test_a_pi_that_is_set_up_has_nothing_to_mend(pi: Pi) -> None:
    computer = pi.computer()
    for check in (ports.groups, ports.i2c, ports.serial, ports.gpio):
        assert [(f.state, f.cure) for f in check(computer)] == [("ok", "")] * (
            2 if check is ports.serial else 1
        )


@pytest.mark.parametrize(
    ("name", "text", "check", "state", "found", "cure"),
    [
        ("etc/group", "gpio:x:993:pi\ni2c:x:994:bob\n", ports.groups, "error",
         "pi is not in dialout, i2c", "sudo usermod -aG dialout,i2c pi"),
        ("dev/i2c-1", None, ports.i2c, "error", "no /dev/i2c-1", "do_i2c 0"),
        (SPEED, (100_000).to_bytes(4, "big"), ports.i2c, "warning", "100 kHz, 400 are wanted",
         "i2c_arm_baudrate=400000"),
        (SPEED, None, ports.i2c, "warning", "its speed is not known", "i2c_arm_baudrate"),
        ("dev/ttyAMA0", None, ports.serial, "error", "tag: no /dev/ttyAMA0", "do_serial_hw 0"),
        ("dev/ttyAMA1", None, ports.serial, "warning", "gps: no /dev/ttyAMA1",
         "add  dtoverlay=uart3  (on a Pi 5: uart2-pi5) to /boot/firmware/config.txt"),
        ("proc/cmdline", "console=ttyAMA0,115200 rootwait", ports.serial, "error",
         "tag: /dev/ttyAMA0 is the console", "do_serial_cons 1"),
        ("proc/device-tree/model", None, ports.gpio, "error", "is no Raspberry Pi", "--sim"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_with_its_cure(
    pi: Pi, name: str, text: str | bytes | None, check: Check, state: str,
    found: str, cure: str,
) -> None:  # fmt: skip
    if text is None:
        pi.remove(name)
    else:
        pi.write(name, text)
    finding = worst(list(check(pi.computer())))
    assert finding.state == state
    assert found in finding.found
    assert cure in finding.cure


def test_groups_of_the_unit_count_and_root_needs_none(pi: Pi) -> None:
    pi.write("etc/group", "dialout:x:20:\ni2c:x:994:\ngpio:x:993:\n")
    assert worst(list(ports.groups(pi.computer()))).state == "error"
    pi.write(UNIT, "[Service]\nUser=blimp\nSupplementaryGroups=gpio i2c dialout\n")
    assert worst(list(ports.groups(pi.computer()))).state == "ok"
    pi.write(UNIT, "[Service]\nUser=root\n")
    assert [finding.found for finding in ports.groups(pi.computer())] == ["root"]


def test_an_alias_of_the_console_is_the_console(pi: Pi) -> None:
    pi.remove("dev/ttyAMA0")
    pi.write("dev/ttyS0", "")
    (pi.root / "dev/ttyAMA0").symlink_to("ttyS0")
    pi.write("proc/cmdline", "console=ttyS0,115200")
    assert "is the console" in worst(list(ports.serial(pi.computer()))).found


@pytest.mark.parametrize(
    ("model", "library", "state", "found"),
    [
        (
            "Raspberry Pi 5 Model B Rev 1.0",
            {"RPi.GPIO": "0.7.1"},
            "error",
            "does not know its pins",
        ),
        ("Raspberry Pi 5 Model B Rev 1.0", LIBRARY, "ok", "rpi-lgpio 0.6"),
        ("Raspberry Pi Zero 2 W Rev 1.0", {"RPi.GPIO": "0.7.1"}, "ok", "RPi.GPIO 0.7.1"),
        ("Raspberry Pi 4 Model B", {"RPi.GPIO": "0.7.1", **LIBRARY}, "error", "both installed"),
        ("Raspberry Pi 4 Model B", {}, "error", "neither rpi-lgpio nor RPi.GPIO"),
    ],
)
def test_the_library_fits_the_pi(
    pi: Pi, model: str, library: dict[str, str], state: str, found: str
) -> None:
    pi.write("proc/device-tree/model", model + "\0")
    finding = worst(list(ports.gpio(pi.computer(library=library))))
    assert finding.state == state
    assert found in finding.found
    assert (finding.cure == "") == (state == "ok")
