"""The wires of a world in another process: `Electrical` over the server's socket."""

import contextlib
import heapq
import os
import select
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.sim import wire
from blimp.sim.bus import no_answer
from blimp.sim.electrical import BytesCallback, Cameras, CameraSight, EdgeCallback, Pull
from blimp.types import VehicleState

TIMEOUT_S = 0.2
_RECONNECT_S = 0.2
_LATE_S = 0.0003  # by about this much the kernel wakes a sleeper late: the rest is polled away
_RECEIVE_BYTES = 64 * 1024

_R = TypeVar("_R", bound=wire.Reply)


class RemoteWorld(Closing):
    """A client of `blimp.sim.server`. A context manager; close is idempotent.

    Any call may raise OSError(EREMOTEIO) where no world answers within 0.2 s: a ship without
    power looks like this. The next call tries again; what this computer drives its pins with
    is sent to a world that has come back. Edges and serial bytes arrive in a thread of its
    own, which starts with the first watch.

    clock: what the drivers read; the machine's monotonic clock, which the world stamps its
    edges with.
    """

    def __init__(self, socket_path: str | Path, *, clock: Clock | None = None) -> None:
        self.computer: Any = None
        self._path = os.fspath(socket_path)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._frames = wire.FrameBuffer()
        self._board: wire.Board | None = None
        self._driven: dict[tuple[type[wire.Request], int], wire.Request] = {}
        self._pushes = _Pushes(self._path, clock=clock or SystemClock())

    # --- beyond the wires ------------------------------------------------------------------

    def report(self) -> wire.Truth:
        """Return the ship's true state and what its chips drive, of one instant."""
        return self._ask(wire.AskTruth(), wire.Truth)

    def truth(self) -> VehicleState:
        return self.report().state

    def outputs(self) -> dict[str, float]:
        return self.report().outputs

    def fault(self, device: str, kind: str, /, **options: object) -> None:
        """Let a device fail. Raises ConfigError naming what is known."""
        reply = self._ask_any(wire.SetFault(device, kind, options))
        if isinstance(reply, wire.Refused):
            raise ConfigError(reply.reason)

    def hold(self, held: bool) -> None:
        """Have a person hold the ship where it is, or let go of it."""
        self._ask(wire.SetHeld(held), wire.Done)

    def air(self, kind: str, /, **options: float) -> None:
        """Let the air or the gas do something. Raises ConfigError naming what is known."""
        reply = self._ask_any(wire.SetAir(kind, options))
        if isinstance(reply, wire.Refused):
            raise ConfigError(reply.reason)

    def close(self) -> None:
        if self.computer is not None:
            self.computer.close()
            self.computer = None
        self._pushes.close()
        with self._lock:
            self._hang_up()

    # --- the wires: `Electrical` --------------------------------------------------------------

    def i2c_buses(self) -> tuple[int, ...]:
        return self._the_board().buses

    def serial_ports(self) -> Mapping[str, int]:
        return self._the_board().ports

    def pwm_pins(self) -> Mapping[tuple[int, int], int]:
        return {(chip, channel): pin for chip, channel, pin in self._the_board().pwm}

    def spi_devices(self) -> tuple[tuple[int, int], ...]:
        return self._the_board().spi

    def spi(self, bus: int, select: int, data: bytes) -> bytes:
        reply = self._ask(wire.SpiTransfer(bus, select, data), wire.Data)
        if len(reply.data) != len(data):
            raise no_answer()
        return reply.data

    def i2c(self, bus: int, address: int, data: bytes, length: int) -> bytes:
        reply = self._ask_any(wire.I2cTransfer(bus, address, data, length))
        if isinstance(reply, wire.Data) and len(reply.data) == length:
            return reply.data
        if isinstance(reply, wire.Failed):
            raise OSError(reply.errno, os.strerror(reply.errno))
        raise no_answer()

    def pin_mode(self, pin: int, *, output: bool, pull: Pull) -> None:
        self._drive(pin, wire.PinMode(pin, output, int(pull)))

    def pin_is_output(self, pin: int) -> bool:
        return self._ask(wire.PinRead(pin), wire.PinState).output

    def pin_write(self, pin: int, high: bool, *, held_s: float) -> None:
        self._driven.pop((wire.PinPwm, pin), None)
        self._drive(pin, wire.PinWrite(pin, high, held_s))

    def pin_pwm(self, pin: int, duty: float | None, *, frequency_hz: float) -> None:
        self._drive(pin, wire.PinPwm(pin, duty, frequency_hz))

    def pin_read(self, pin: int) -> bool:
        return self._ask(wire.PinRead(pin), wire.PinState).high

    def pin_watch(self, pin: int, callback: EdgeCallback | None) -> None:
        self._pushes.watch(pin, callback)

    def serial_listen(self, port: str, callback: BytesCallback | None) -> None:
        self._pushes.listen(port, callback)

    def serial_write(self, port: str, data: bytes) -> None:
        self._tell(wire.SerialWrite(port, data))

    def cameras(self) -> Cameras:
        return self._ask(wire.AskCameras(), wire.AllCameras).cameras

    def camera(self, number: int, since_s: float) -> CameraSight:
        reply = self._ask_any(wire.AskCamera(number, since_s))
        if isinstance(reply, wire.CameraSeen):
            return reply.sight
        if isinstance(reply, wire.Failed):
            raise OSError(reply.errno, os.strerror(reply.errno))
        raise no_answer()

    def camera_close(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._tell(wire.CloseCamera(number))

    # --- asking and telling -----------------------------------------------------------------

    def _the_board(self) -> wire.Board:
        if self._board is None:
            self._board = self._ask(wire.AskBoard(), wire.Board)
        return self._board

    def _ask(self, request: wire.Request, kind: type[_R]) -> _R:
        reply = self._ask_any(request)
        if not isinstance(reply, kind):
            raise no_answer()
        return reply

    def _ask_any(self, request: wire.Request) -> wire.Reply:
        with self._lock:
            try:
                connection = self._sent(request)
                while True:
                    data = connection.recv(_RECEIVE_BYTES)
                    if not data:
                        raise ConnectionResetError("the world hung up")
                    bodies = self._frames.feed(data)
                    if bodies:
                        reply: wire.Reply = wire.decode_reply(bodies[0])
                        return reply
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                # Half an answer may still be on its way: only a new connection is in step.
                self._hang_up()
                raise no_answer() from error

    def _drive(self, pin: int, request: wire.Request) -> None:
        self._driven[type(request), pin] = request
        self._tell(request)

    def _tell(self, request: wire.Request) -> None:
        with self._lock:
            try:
                self._sent(request)
            except OSError as error:
                self._hang_up()
                raise no_answer() from error

    def _sent(self, request: wire.Request) -> socket.socket:
        """Send on the open connection, or on a new one where the world has hung up."""
        data = wire.frame(request)
        if self._connection is not None:
            try:
                self._connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                self._hang_up()
            else:
                return self._connection
        connection = self._connected()
        connection.sendall(data)
        return connection

    def _connected(self) -> socket.socket:
        if self._connection is None:
            connection = _connect(self._path)
            try:
                for request in self._driven.values():
                    connection.sendall(wire.frame(request))
            except OSError:
                connection.close()
                raise
            self._connection = connection
            self._frames = wire.FrameBuffer()
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Pushes:
    """The connection that edges and serial bytes come in on, and its thread."""

    def __init__(self, path: str, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._edge_callbacks: dict[int, EdgeCallback] = {}
        self._byte_callbacks: dict[str, BytesCallback] = {}
        self._thread: threading.Thread | None = None
        self._closing = False
        self._changed = False
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._due: list[tuple[float, int, bool]] = []  # when, which pin, which level

    def watch(self, pin: int, callback: EdgeCallback | None) -> None:
        if callback is None:
            self._edge_callbacks.pop(pin, None)
        else:
            self._edge_callbacks[pin] = callback
        self._renew()

    def listen(self, port: str, callback: BytesCallback | None) -> None:
        if callback is None:
            self._byte_callbacks.pop(port, None)
        else:
            self._byte_callbacks[port] = callback
        self._renew()

    def _renew(self) -> None:
        if self._closing:
            return
        self._changed = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sim-pushes", daemon=True)
            self._thread.start()
        else:
            self._waker.send(b"x")

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._waker.send(b"x")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._wake.close()
        self._waker.close()

    def _run(self) -> None:
        while not self._closing:
            try:
                with _connect(self._path) as connection:
                    self._changed = True
                    self._serve(connection)
            except (OSError, ValueError, msgspec.MsgspecError):
                self._due.clear()
                select.select([self._wake], [], [], _RECONNECT_S)
                self._drain()

    def _serve(self, connection: socket.socket) -> None:
        frames = wire.FrameBuffer()
        while not self._closing:
            if self._changed:
                self._changed = False
                pins, ports = tuple(self._edge_callbacks), tuple(self._byte_callbacks)
                connection.sendall(wire.frame(wire.Subscribe(pins, ports)))
            pause_s = None
            if self._due:
                pause_s = max(0.0, self._due[0][0] - _LATE_S - self._clock.now_s())
            ready, _, _ = select.select([connection, self._wake], [], [], pause_s)
            if self._wake in ready:
                self._drain()
            if connection in ready:
                data = connection.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError("the world hung up")
                for body in frames.feed(data):
                    self._take(wire.decode_reply(body))
            while self._due and self._due[0][0] <= self._clock.now_s():
                t_s, pin, high = heapq.heappop(self._due)
                on_edge = self._edge_callbacks.get(pin)
                if on_edge is not None:
                    on_edge(pin, high, t_s)

    def _take(self, pushed: wire.Reply) -> None:
        if isinstance(pushed, wire.Pulse):
            # Sent ahead of time: waiting for its moments here is more exact than a socket.
            heapq.heappush(self._due, (pushed.rise_s, pushed.pin, True))
            heapq.heappush(self._due, (pushed.fall_s, pushed.pin, False))
        elif isinstance(pushed, wire.SerialBytes):
            on_bytes = self._byte_callbacks.get(pushed.port)
            if on_bytes is not None:
                on_bytes(pushed.data)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(_RECEIVE_BYTES)


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection
