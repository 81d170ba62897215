"""The files of a Pi as its kernel and its owner write them, below a directory of a test."""

from pathlib import Path
from typing import Any

from blimp import airframe
from blimp.airframe import Airframe
from blimp.clock import SystemClock
from blimp.link.paths import RuntimePaths
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.systemd import plan_install
from blimp.service.doctor.computer import Computer, Finding

TWIN = airframe.load("twin")
UNIT = "etc/systemd/system/blimp-flight.service"
THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
SPEED = "sys/class/i2c-adapter/i2c-1/of_node/clock-frequency"
LIBRARY = {"rpi-lgpio": "0.6"}


class Pi:
    """A Pi 4 on which all is well, until a test changes a file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4\0")
        self.write("proc/cmdline", "console=tty1 root=PARTUUID=1-02 rootwait\n")
        self.write("etc/group", "root:x:0:\ndialout:x:20:pi\ni2c:x:994:pi\ngpio:x:993:pi\n")
        for device in ("i2c-1", "ttyAMA0", "ttyAMA1"):
            self.write(f"dev/{device}", "")
        self.write(SPEED, (400_000).to_bytes(4, "big"))
        self.write(THROTTLED, "0\n")
        (root / "var").mkdir()
        (root / "run").mkdir()

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def install_units(self, configuration: Configuration, *, user: str = "pi") -> None:
        plan = plan_install(configuration, config_path=Path("/etc/blimp/blimp.toml"), user=user)
        for file in plan.files:
            self.write(file.path.lstrip("/"), file.text)

    def computer(
        self,
        *,
        ship: Airframe = TWIN,
        library: dict[str, str] | None = None,
        **changes: Any,
    ) -> Computer:
        settings: dict[str, Any] = {
            "configuration": Configuration(),
            "config_path": Path("/etc/blimp/blimp.toml"),
            "config_problem": "",
            "paths": RuntimePaths(self.root / "run" / "blimp"),
            "clock": SystemClock(),
            "root": self.root,
            "version_of": (LIBRARY if library is None else library).get,
            "synchronised": lambda: True,
        }
        return Computer(airframe=ship, **(settings | changes))


def worst(findings: list[Finding]) -> Finding:
    """Return the first of the gravest findings."""
    return max(findings, key=lambda found: ("ok", "warning", "error").index(found.state))
