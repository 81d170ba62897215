"""The simulated world outside the box, on the host; its time is the box's."""

import contextlib
import selectors
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from blimp import airframe as airframes
from blimp.closing import Closing
from blimp.sim.remote import RemoteWorld
from blimp.sim.server import serve
from blimp.sim.world import World
from tests.box.bridge import HEAD
from tests.box.image import Image
from tests.box.machine import Box
from tests.needs import not_run

UNIT = "/etc/systemd/system/box-world.service"
DROP_IN = "/etc/systemd/system/blimp-flight.service.d"
_BRIDGE = "/usr/local/lib/box-world.py"
_WORLD_UNIT = f"""[Unit]
Description=The simulated world, which is outside of this box
Before=blimp-flight.service
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/bin/python3 {_BRIDGE} /run/blimp/world.sock 10.0.2.2
Restart=always
CPUSchedulingPolicy=fifo
CPUSchedulingPriority=60
User=blimp
RuntimeDirectory=blimp
RuntimeDirectoryMode=0750
RuntimeDirectoryPreserve=yes
"""
_FLY = "--config /etc/blimp/blimp.toml --runtime-dir /run/blimp --sim"
_FLIGHT_DROP_IN = f"""[Unit]
Wants=box-world.service
After=box-world.service
[Service]
ExecStart=
ExecStart=/usr/local/bin/blimp fly {_FLY}
ExecStopPost=
ExecStopPost=-/usr/local/bin/blimp safe-state {_FLY}
"""


class BoxClock:
    """The monotonic clock of the box, as its last message had it. Implements Clock."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def hear(self, now_s: float) -> None:
        self._now_s = max(self._now_s, now_s)

    def wall_s(self) -> float:
        return self._now_s

    def sleep_until(self, deadline_s: float) -> None:
        raise NotImplementedError


class OutsideWorld(Closing):
    """A box sees `world` through this. A context manager; close is idempotent.

    While the box is off, or busy with nothing that asks, the world stands still: its time is the
    box's own clock.
    """

    def __init__(self, world: World, *, directory: Path) -> None:
        self.world = world
        self.path = directory / "world.sock"
        self.clock = BoxClock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._bridge = threading.Thread(target=self._carry, name="world-bridge", daemon=True)
        self._begin()
        self._bridge.start()

    def restart(self) -> None:
        """The box has been off, and its clock starts at zero again."""
        self._end()
        self.clock = BoxClock()
        self._begin()

    def _begin(self) -> None:
        self._server = serve(self.world, socket_path=self.path, clock=self.clock)
        self._thread = threading.Thread(target=self._server.run, name="world", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._server.stop()
        self._thread.join()
        self._server.close()

    def ask(self) -> RemoteWorld:
        return RemoteWorld(self.path)

    def close(self) -> None:
        self._ended.set()
        self._end()
        self._bridge.join()
        self._listener.close()

    def _carry(self) -> None:
        """Carry between the box's connections and the server's socket."""
        pairs: dict[socket.socket, socket.socket] = {}
        unread: dict[socket.socket, bytes] = {}  # of the box
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in selector.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is self._listener:
                        box = self._listener.accept()[0]
                        box.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        here = socket.socket(socket.AF_UNIX)
                        here.connect(str(self.path))
                        pairs[box], pairs[here], unread[box] = here, box, b""
                        for end in (box, here):
                            selector.register(end, selectors.EVENT_READ)
                    elif one in pairs:
                        try:
                            data = one.recv(65536)
                            if one in unread:
                                unread[one] = self._forward(unread[one] + data, pairs[one])
                            else:
                                pairs[one].sendall(data)
                        except OSError:
                            data = b""
                        if not data:
                            other = pairs.pop(one)
                            del pairs[other]
                            for end in (one, other):
                                unread.pop(end, None)
                                selector.unregister(end)
                                end.close()
            for end in pairs:
                end.close()

    def _forward(self, data: bytes, here: socket.socket) -> bytes:
        """Hear the time of each whole message and forward the rest of it; return what is left."""
        while len(data) >= HEAD.size:
            now_s, length = HEAD.unpack_from(data)
            end = HEAD.size + length
            if len(data) < end:
                break
            self.clock.hear(now_s)
            with contextlib.suppress(BlockingIOError):
                here.sendall(data[HEAD.size : end])
            data = data[end:]
        return data


@contextmanager
def installed() -> Iterator[tuple[Box, OutsideWorld]]:
    """A box, off, with a copy of the card that `tests.box.page` left, and its world."""
    image = Image("bookworm")
    card = image.directory / "installed.raw"
    if not card.exists():
        raise not_run("a box with a ship: python -m tests.box.page")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="box-") as name:
        box = Box(image, Path(name))
        box.put_in(card)
        with OutsideWorld(twin(), directory=Path(name)) as world, box:
            yield box, world


def twin(seed: int = 1) -> World:
    return World(airframes.load("twin"), seed=seed)


def wire(box: Box) -> None:
    """Put the drop-ins in, before `install-service`: the chips of the unit `blimp-flight` are those
    of the world outside, reached by the seam below the drivers."""
    bridge = resources.files("tests.box").joinpath("bridge.py").read_text("utf-8")
    box.write(_BRIDGE, bridge)
    box.write(UNIT, _WORLD_UNIT)
    box.write(f"{DROP_IN}/box.conf", _FLIGHT_DROP_IN)
    box.ssh("sudo systemctl daemon-reload")


def unwire(box: Box) -> None:
    """Take out what `wire` put in, which runs as the ship's user."""
    box.ssh("sudo systemctl stop box-world")
    box.ssh(f"sudo rm -r {_BRIDGE} {UNIT} {DROP_IN} && sudo systemctl daemon-reload")
