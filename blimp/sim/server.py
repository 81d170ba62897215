"""The world in real time behind a Unix socket: what `blimp sim` runs.

One thread does it all: physics at a fixed rate, events at their exact times, and in between
every client's request at once. Clients come and go; the motors keep their last
command.
"""

import contextlib
import errno
import os
import select
import socket
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.link.paths import make_own_directory
from blimp.sim import wire
from blimp.sim.electrical import Pull
from blimp.sim.world import World

STEP_S = 0.004
_MAX_LAG_S = 0.25  # after a stall longer than this, the rest of it has not happened
_MAX_CATCH_UP_S = 0.02  # at a time, before clients are looked at again
_MAX_PATH_BYTES = 107
_MAX_CLIENTS = 32
_MAX_UNSENT_BYTES = 256 * 1024
_RECEIVE_BYTES = 64 * 1024


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = wire.FrameBuffer()
        self.unsent = bytearray()
        self.pins: frozenset[int] = frozenset()
        self.ports: frozenset[str] = frozenset()
        self.cameras: set[int] = set()  # that it has opened

    def fileno(self) -> int:
        return self.connection.fileno()


class Server(Closing):
    """Serves one world on one socket. A context manager; close is idempotent.

    The socket accepts as soon as this is made; nothing moves before `run`. Its directory is
    made with mode 0700 where it is missing. Raises ConfigError where the path is too long
    or another world answers there already.
    """

    def __init__(self, world: World, *, socket_path: str | Path, clock: Clock) -> None:
        self._world = world
        self._clock = clock
        self._path = Path(socket_path)
        self._zero_s = 0.0  # the clock's time at the world's time 0
        self._clients: list[_Client] = []
        self._stopping = False
        self.lost_s = 0.0  # time that stalls took from the world
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        try:
            self._listener = _listen(self._path)
        except BaseException:
            self._wake.close()
            self._waker.close()
            raise
        world.electronics.pins.on_announced(self._push_pulse)
        for port in world.electronics.ports:
            world.electronics.listen(port, partial(self._push_serial, port))

    def stop(self) -> None:
        """Let `run` return soon. May be called from a signal handler or another thread."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def run(self) -> None:
        """Run the world until `stop`."""
        self._zero_s = self._clock.now_s() - self._world.t_s
        while not self._stopping:
            next_s = self._catch_up()
            pause_s = max(0.0, next_s + self._zero_s - self._clock.now_s())
            # select, because its time-out is in microseconds; epoll's is in milliseconds.
            waiting = [client for client in self._clients if client.unsent]
            sources: list[Any] = [self._wake, self._listener, *self._clients]
            readable, writable, _ = select.select(sources, waiting, [], pause_s)
            for ready in readable:
                if ready is self._listener:
                    self._accept()
                elif isinstance(ready, _Client):
                    self._receive(ready)
            for client in writable:
                self._flush(client)

    def close(self) -> None:
        """Hang up on everybody and remove the socket."""
        self._stopping = True
        for client in tuple(self._clients):
            self._drop(client)
        if self._listener.fileno() >= 0:
            self._listener.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        self._wake.close()
        self._waker.close()

    # --- time ---------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self._clock.now_s() - self._zero_s

    def _catch_up(self) -> float:
        """Move the world on; return the world's time at which it wants to move again."""
        world = self._world
        now_s = self._now_s()
        lag_s = now_s - world.t_s
        if lag_s > _MAX_LAG_S:
            self.lost_s += lag_s - _MAX_LAG_S
            self._zero_s += lag_s - _MAX_LAG_S
            now_s = world.t_s + _MAX_LAG_S
        if now_s >= world.t_s + STEP_S or now_s >= world.timeline.next_s:
            world.advance_to(min(now_s, world.t_s + _MAX_CATCH_UP_S))
        return min(world.t_s + STEP_S, world.timeline.next_s)

    # --- clients -----------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._clients) >= _MAX_CLIENTS:
                connection.close()
                return
            connection.setblocking(False)
            self._clients.append(_Client(connection))

    def _receive(self, client: _Client) -> None:
        try:
            data = client.connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        try:
            requests = [wire.decode_request(body) for body in client.frames.feed(data)]
        except (ValueError, msgspec.MsgspecError):
            self._drop(client)  # who does not speak the protocol is not spoken to
            return
        self._world.set_time(self._now_s())
        for request in requests:
            reply = self._answer(client, request)
            if reply is not None:
                self._send(client, reply)

    def _answer(self, client: _Client, request: wire.Request) -> wire.Reply | None:
        world = self._world
        match request:
            case wire.I2cTransfer(bus, address, data, length):
                try:
                    return wire.Data(world.i2c(bus, address, data, length))
                except OSError as error:
                    return wire.Failed(error.errno or 0)
            case wire.SpiTransfer(bus, select, data):
                return wire.Data(world.spi(bus, select, data))
            case wire.PinPwm(pin, duty, frequency_hz):
                world.pin_pwm(pin, duty, frequency_hz=frequency_hz)
            case wire.PinWrite(pin, high, held_s):
                world.pin_write(pin, high, held_s=held_s)
            case wire.PinMode(pin, output, pull):
                world.pin_mode(pin, output=output, pull=Pull(pull))
            case wire.PinRead(pin):
                return wire.PinState(world.pin_read(pin), world.pin_is_output(pin))
            case wire.SerialWrite(port, data):
                world.serial_write(port, data)
            case wire.Subscribe(pins, ports):
                client.pins, client.ports = frozenset(pins), frozenset(ports)
            case wire.AskBoard():
                pwm = tuple((*where, pin) for where, pin in world.pwm_pins().items())
                serial = dict(world.serial_ports())
                return wire.Board(world.i2c_buses(), serial, pwm, world.spi_devices())
            case wire.AskTruth():
                physics = world.physics
                return wire.Truth(
                    world.truth,
                    world.outputs,
                    world.outputs_safe,
                    physics.wind.mean_ned_mps,
                    physics.heaviness_kg,
                )
            case wire.AskCameras():
                return wire.AllCameras(world.cameras())
            case wire.AskCamera(number, since_s):
                if any(number in one.cameras for one in self._clients if one is not client):
                    return wire.Failed(errno.EBUSY)
                try:
                    sight = world.camera(number, since_s)
                except OSError as error:
                    return wire.Failed(error.errno or 0)
                client.cameras.add(number)
                return wire.CameraSeen(replace(sight, zero_s=self._zero_s))
            case wire.CloseCamera(number):
                client.cameras.discard(number)
            case wire.SetFault(device, kind, options):
                try:
                    world.fault(device, kind, **options)
                except ConfigError as error:
                    return wire.Refused(str(error))
                return wire.Done()
            case wire.SetHeld(held):
                world.physics.held = held
                return wire.Done()
            case wire.SetAir(kind, options):
                try:
                    world.air(kind, **options)
                except ConfigError as error:
                    return wire.Refused(str(error))
                return wire.Done()
        return None

    def _push_pulse(self, pin: int, rise_s: float, fall_s: float) -> None:
        pulse = wire.Pulse(pin, rise_s + self._zero_s, fall_s + self._zero_s)
        for client in tuple(self._clients):
            if pin in client.pins:
                self._send(client, pulse)

    def _push_serial(self, port: str, data: bytes) -> None:
        for client in tuple(self._clients):
            if port in client.ports:
                self._send(client, wire.SerialBytes(port, data))

    def _send(self, client: _Client, reply: wire.Reply) -> None:
        client.unsent += wire.frame(reply)
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            sent = client.connection.send(client.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.unsent[:sent]
        if len(client.unsent) > _MAX_UNSENT_BYTES:
            self._drop(client)  # it has stopped reading

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
        client.connection.close()


def serve(world: World, *, socket_path: str | Path, clock: Clock) -> Server:
    """Return a server that accepts at once; `run` it, `stop` it, `close` it."""
    return Server(world, socket_path=socket_path, clock=clock)


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise ConfigError(
            f"the world's socket {path} has {len(os.fsencode(path))} bytes in its path; "
            f"the kernel's limit is {_MAX_PATH_BYTES}"
        )
    make_own_directory(path.parent)
    if path.exists():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(path))
            except OSError:
                path.unlink(missing_ok=True)  # a killed server's
            else:
                raise ConfigError(f"another world already answers at {path}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(_MAX_CLIENTS)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(f"the world's socket {path}: {error}") from error
    return listener
