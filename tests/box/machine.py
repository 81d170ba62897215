"""The computer of the box: QEMU's, with a card that can be cut off, and a shell over ssh.

Its processor is emulated with a clock of its own (`-icount shift=0`): an instruction takes a
nanosecond, so Python is about as fast as on a Zero 2 W, whatever else this machine does. What the
box calls a second takes longer outside, the more the busier: deadlines and durations of the box
are those of its own clock. KVM would be in a hurry, and is not to be had on every machine.
"""

import os
import random
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

from blimp.closing import Closing
from blimp.processes import _shim
from ground_station.page import PORT as PAGE_PORT
from tests.box.card import Card, Event
from tests.box.image import Image
from tests.redis_server import free_port
from tests.repeating import until

BOOT_S = 1200.0  # outside, on a machine that 20 others use; alone half a minute
COMMAND_S = 3600.0


class Box(Closing):
    """One computer with one card. A context manager; close pulls its plug.

    directory: holds the card and the sockets; in memory (/dev/shm), it is faster.
    """

    def __init__(self, image: Image, directory: Path, *, memory_mb: int = 1024) -> None:
        self.image = image
        self.memory_mb = memory_mb
        self.directory = directory
        self.disk = directory / "card.raw"
        self.serial = directory / "serial.log"
        self.port, self.page_port = free_port(), free_port()  # here, of its ssh and its page
        self.events: list[Event] | None = None  # of the card, if it is to say them
        self._card: Card | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._login: subprocess.Popen[bytes] | None = None

    # --- power ---------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        return self._process is not None

    def put_in(self, disk: Path) -> None:
        """Put a card with a copy of `disk` in."""
        self.directory.mkdir(parents=True, exist_ok=True)
        copy = ["cp", "--sparse=always", "--reflink=auto", os.fspath(disk), os.fspath(self.disk)]
        subprocess.run(copy, check=True)

    def switch_on(self, *, epoch: str = "now", world_port: int = 0) -> None:
        """Begin to boot.

        epoch: what the clock chip says, `now` or ISO 8601 in UTC. world_port: where the world is.
        """
        arch = self.image.arch
        qemu = f"qemu-system-{arch.machine}"
        if shutil.which(qemu) is None:
            raise RuntimeError(f"no {qemu} here; try: apt-get install {arch.qemu_package}")
        self._card = Card(self.disk, self.directory / "card.sock", events=self.events)
        self.serial.write_bytes(b"")
        command = [
            "nice", "-n", "10", qemu, "-machine", f"{arch.board},accel=tcg", "-cpu", arch.cpu,
            "-icount", "shift=0,sleep=on", "-m", str(self.memory_mb), "-nodefaults", "-nographic",
            "-no-reboot", "-rtc", f"base={'utc' if epoch == 'now' else epoch},clock=vm",
            "-serial", f"file:{self.serial}",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
            "-append", "root=/dev/vda rw mitigations=off nokaslr "
            f"console={arch.console} blimp.world={world_port}",
            "-drive", f"file=nbd+unix:///?socket={self._card.socket_path},format=raw,if=virtio",
            "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22,"
            f"hostfwd=tcp:127.0.0.1:{self.page_port}-:{PAGE_PORT}",
            "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci",
        ]  # fmt: skip
        with (self.directory / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_shim(signal.SIGKILL), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_until_up(self) -> None:
        """Return as soon as ssh answers. Raises AssertionError with the console's last lines."""
        # QEMU takes a connection before the box's network is there, and would let ssh wait.
        try:
            until(self._asks_for_a_login, "no login", within_s=BOOT_S)
        except TimeoutError as error:
            console = self.serial.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{error}:\n{console}") from None
        self.ssh("true", timeout_s=BOOT_S)

    def _asks_for_a_login(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "qemu.log").read_text()
        return b"login:" in self.serial.read_bytes()

    def boot(self, *, epoch: str = "now", world_port: int = 0) -> None:
        self.switch_on(epoch=epoch, world_port=world_port)
        self.wait_until_up()

    def fail_card(self, *, reads: bool) -> None:
        """As `Card.fail`, until the power is off."""
        assert self._card is not None
        self._card.fail(reads=reads)

    def cut(self, chance: random.Random) -> tuple[int, int]:
        """Pull the plug; return how many unflushed blocks the card had, and how many it lost."""
        self.kill()
        assert self._card is not None
        lost = self._card.cut(chance)
        self._card.close()
        self._card = None
        return lost

    def switch_off(self) -> None:
        """As the page says: `sudo poweroff`, and wait until it is dark."""
        self.ssh("sudo poweroff", check=False)
        assert self._process is not None
        self._process.wait(BOOT_S)
        self.close()

    def close(self) -> None:
        self.kill()
        if self._card is not None:
            self._card.close()
            self._card = None

    def kill(self) -> None:
        """End QEMU: the computer is dead, and the card has power until `cut`. Idempotent."""
        for process in (self._login, self._process):
            if process is not None:
                process.kill()
                process.wait()
        self._login = self._process = None

    # --- the shell -----------------------------------------------------------------------------

    @property
    def page_reached(self) -> str:
        """An option of Chromium: the ship's address, in QEMU's network, leads to the box."""
        return f"--host-resolver-rules=MAP 10.0.2.15:{PAGE_PORT} 127.0.0.1:{self.page_port}"

    @property
    def options(self) -> list[str]:
        """What ssh and scp need to reach `pilot@ship.local` here, but for the port."""
        return [
            "-i", str(self.image.key), "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
            "-o", "UserKnownHostsFile=/dev/null", "-o", "HostKeyAlias=ship",
            "-o", "ConnectTimeout=300", "-o", "HostName=127.0.0.1", "-o", f"Port={self.port}",
        ]  # fmt: skip

    def ssh(
        self, command: str, *, typed: str = "", check: bool = True, timeout_s: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """Type a line at the shell of `pilot`, and what it then asks for."""
        kept = [] if self._login is None else ["-S", str(self.directory / "login")]
        ended = subprocess.run(
            ["ssh", *self.options, *kept, "pilot@ship.local", command],
            input=typed, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        if check and ended.returncode != 0:
            raise AssertionError(f"{command}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
        return ended

    def log_in(self, *, forward: str | None = None) -> None:
        """Log in once for each `ssh` until the box is off: a new login takes half a second of it.

        forward: what `ssh -L` opens meanwhile.
        """
        control = self.directory / "login"
        control.unlink(missing_ok=True)
        words = ["-M", "-S", str(control), "-N", "-o", "StreamLocalBindUnlink=yes"]
        if forward is not None:
            words += ["-L", forward]
        self._login = subprocess.Popen(["ssh", *self.options, *words, "pilot@ship.local"])
        until(control.exists, "no login", within_s=BOOT_S)

    def says(self, command: str) -> str:
        return self.ssh(command).stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file as root."""
        self.ssh(f"sudo mkdir -p $(dirname {path}) && sudo tee {shlex.quote(path)}", typed=text)
