"""The system of the box: Debian from packages alone, as Raspberry Pi OS Lite leaves its user.

    make box                                # Debian 12; debootstrap, and a minute or two more
    make box BOX="--suite trixie --fresh"
    make box BOX="--arch arm64"             # as a Pi's, in build/box/bookworm-arm64

It is `build/box/SUITE`: the disk, Debian's own kernel and initrd beside it, so that no boot
loader is needed, and the key of ssh. What Raspberry Pi's archive has and Debian has not,
rpi-lgpio, is packed from the wheels of its index and lies in an archive of the image's own.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.platforms import MIRROR, CannotRun, check_possible, emulate, pip_options

BUILD = Path(__file__).resolve().parents[2] / "build" / "box"
DISK_BYTES = 4 << 30  # a card of 8 GB has more; sparse
# What a Raspberry Pi OS Lite has, as far as this project's pages take it for granted.
PACKAGES = (
    "ca-certificates", "dbus", "initramfs-tools", "iproute2", "kmod", "nano", "openssh-server",
    "procps", "python3", "sudo", "systemd", "systemd-sysv", "systemd-timesyncd", "udev",
    "util-linux-extra",
)  # fmt: skip
# Wheels that take the place of Raspberry Pi's python3-rpi-lgpio, which Debian has not. That of
# rpi-lgpio is for every machine. That of lgpio is machine code, and there is none for the Python
# 3.13 of Debian 13, whose `doctor` cannot open a GPIO then.
ARCHIVED = {
    "bookworm": ("rpi-lgpio==0.6", "lgpio==0.2.2.0"),
    "trixie": ("rpi-lgpio==0.6",),
}
SUITES = tuple(ARCHIVED)


@dataclass(frozen=True, kw_only=True)
class Arch:
    """What differs between boxes of two architectures."""

    name: str  # Debian's
    machine: str  # the kernel's name, pip's and QEMU's
    qemu_package: str
    board: str
    cpu: str
    console: str


ARCHS = {
    "amd64": Arch(
        name="amd64", machine="x86_64", qemu_package="qemu-system-x86",
        board="q35", cpu="Nehalem", console="ttyS0",
    ),
    "arm64": Arch(  # a Zero 2 W has four Cortex-A53
        name="arm64", machine="aarch64", qemu_package="qemu-system-arm",
        board="virt", cpu="cortex-a53", console="ttyAMA0",
    ),
}  # fmt: skip

_SETUP = r"""
set -e
useradd --create-home --shell /bin/bash --groups sudo pilot
for group in gpio i2c spi; do groupadd --system $group; done   # as Raspberry Pi OS has
echo 'pilot ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/010_pi-nopasswd
passwd --quiet --delete root   # at the serial console, which is this program's
echo ship > /etc/hostname
echo '127.0.0.1 localhost ship' > /etc/hosts
echo 'nameserver 10.0.2.3' > /etc/resolv.conf   # QEMU's
echo '/dev/vda / ext4 defaults,noatime 0 1' > /etc/fstab
printf '[Match]\nName=en*\n[Network]\nDHCP=yes\n' > /etc/systemd/network/20-wired.network
systemctl --quiet enable systemd-networkd ssh
printf 'virtio_blk\nvirtio_pci\next4\n' >> /etc/initramfs-tools/modules
update-initramfs -u
dpkg-deb --build /srv/archive/package /srv/archive/python3-rpi-lgpio.deb
rm -r /srv/archive/package
cd /srv/archive && dpkg-deb --field *.deb > Packages
printf 'Filename: ./python3-rpi-lgpio.deb\nSize: %s\nSHA256: %s\n' \
  $(stat -c %s *.deb) $(sha256sum *.deb | cut -d' ' -f1) >> Packages
echo 'deb [trusted=yes] file:/srv/archive ./' > /etc/apt/sources.list.d/archive.list
apt-get clean
"""
_CONTROL = """Package: python3-rpi-lgpio
Version: 0.6+box
Architecture: {arch}
Depends: python3
Maintainer: the box
Description: rpi-lgpio and lgpio of the Python Package Index, for the box
"""


class Image:
    """The files of a suite's system."""

    def __init__(self, suite: str, arch: str = "amd64", directory: Path = BUILD) -> None:
        self.suite = suite
        self.arch = ARCHS[arch]
        self.directory = directory / (suite if arch == "amd64" else f"{suite}-{arch}")
        self.disk = self.directory / "disk.raw"
        self.kernel = self.directory / "vmlinuz"
        self.initrd = self.directory / "initrd"
        self.key = self.directory / "key"

    @property
    def is_there(self) -> bool:
        return self.disk.exists()

    def build(self, *, mirror: str = MIRROR) -> None:
        """Make it. Raises CannotRun naming what is missing, or the log of what failed."""
        check_possible()
        if self.arch.machine != os.uname().machine:
            emulate(self.arch.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        for old in self.directory.iterdir():
            old.unlink()
        log = self.directory / "build.log"
        with tempfile.TemporaryDirectory(dir=self.directory.parent) as name, log.open("wb") as out:
            root = Path(name, "root")
            settings = root / "etc/initramfs-tools/conf.d"
            settings.mkdir(parents=True)  # before the kernel's package makes its first initrd
            (settings / "box").write_text("MODULES=list\nCOMPRESS=gzip\n")
            try:
                self._run(out, "unshare", "--mount", "debootstrap", "--variant=minbase",
                          f"--arch={self.arch.name}",
                          f"--include=linux-image-{self.arch.name},{','.join(PACKAGES)}",
                          self.suite, str(root), mirror)  # fmt: skip
                self._fill(root, out)
                new = self.directory / "new.raw"
                self._run(out, "mke2fs", "-q", "-t", "ext4", "-L", "ship", "-d", str(root),
                          str(new), str(DISK_BYTES // 1024))  # fmt: skip
            except subprocess.CalledProcessError as error:
                raise CannotRun(
                    f"{error.cmd[0]} failed with {error.returncode}: see {log}"
                ) from None
        new.rename(self.disk)

    def _fill(self, root: Path, out: object) -> None:
        self._archive(root / "srv" / "archive" / "package", out)
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        shutil.copy(certificates, f"{root}{certificates}")  # as pip on this machine trusts them
        if "cert" in pip_options():
            (root / "etc/pip.conf").write_text(f"[global]\ncert = {certificates}\n")
        (root / "setup").write_text(_SETUP)
        inside = 'mount -t proc proc "$1/proc" && exec chroot "$1" sh /setup'
        self._run(out, "unshare", "--mount", "sh", "-c", inside, "sh", str(root))
        (root / "setup").unlink()
        self._run(out, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        home = root / "home/pilot/.ssh"
        home.mkdir(mode=0o700)
        shutil.copy(f"{self.key}.pub", home / "authorized_keys")
        for path in (home, home / "authorized_keys"):
            os.chown(path, 1000, 1000)
        shutil.copy(next((root / "boot").glob("vmlinuz-*")), self.kernel)
        shutil.copy(next((root / "boot").glob("initrd.img-*")), self.initrd)

    def _archive(self, package: Path, out: object) -> None:
        target = package / "usr/lib/python3/dist-packages"
        self._run(out, sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target",
                  str(target), "--only-binary=:all:", "--python-version", "3.11",
                  "--platform", f"manylinux_2_34_{self.arch.machine}",
                  "--implementation", "cp", *ARCHIVED[self.suite])  # fmt: skip
        (package / "DEBIAN").mkdir()
        (package / "DEBIAN/control").write_text(_CONTROL.format(arch=self.arch.name))

    @staticmethod
    def _run(out: object, *command: str) -> None:
        subprocess.run(["nice", *command], stdout=out, stderr=subprocess.STDOUT, check=True)  # type: ignore[call-overload]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.box.image", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--arch", choices=ARCHS, default="amd64", help="default amd64")
    parser.add_argument("--fresh", action="store_true", help="make it again")
    parser.add_argument("--mirror", default=MIRROR, help=f"default {MIRROR}")
    options = parser.parse_args()
    image = Image(options.suite, options.arch)
    if not image.is_there or options.fresh:
        began_s = time.monotonic()
        try:
            image.build(mirror=options.mirror)
        except CannotRun as error:
            print(f"box: NOT RUN: {error}", file=sys.stderr)
            return 1
        took_s = time.monotonic() - began_s
        print(f"box: {image.directory.name} built in {took_s:.0f} s", file=sys.stderr)
    print(image.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
