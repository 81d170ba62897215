"""The control socket of the camera's process: one connection, one question, one answer.

`RUNTIME/camera-control.sock`, for the ship's user, or its group as the mailbox is. Nobody waits for
it in flight: who asks gives a limit, and a process that is stopped or killed is an error in time.
"""

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from blimp.closing import Closing
from blimp.errors import BlimpError, CameraError, LinkError
from blimp.link.paths import is_of_group
from blimp.reading import ready

MAX_BYTES = 128 * 1024  # of a datagram: a small picture, below the kernel's wmem_default of 208 KiB
MAX_AT_ONCE = 4  # questions: a photograph takes a second, and one more asks for the status
READ_S = 1.0  # for the question, once it is connected

Answer = Callable[[dict[str, Any]], Any]


@ready
class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of the camera's pipeline does. took_s: of the last frame, in wall time."""

    frames: int = 0
    took_s: float = 0.0
    failures: int = 0
    problem: str = ""


@ready
class CameraStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the camera's process says of itself. problem: "" if pictures are as they should be.

    brightness: mean, 0 to 255. focus: variance of the Laplacian of the grey values; compare it
    with that of a sharp picture of the same place. tags: in the last picture; None if nobody looks.
    """

    camera: str
    simulated: bool
    problem: str
    size: tuple[int, int] | None
    rate_hz: float
    frames: int
    missed: int
    opened: int
    age_s: float | None  # of the last frame
    exposure_s: float
    gain: float
    brightness: float | None
    focus: float | None
    tags: int | None
    steps: dict[str, StepStatus]


@ready
class _Question(msgspec.Struct, frozen=True):
    ask: str
    arguments: dict[str, Any] = {}


@ready
class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    result: Any = None
    error: str = ""


def ask(path: Path, name: str, *, timeout_s: float, **arguments: Any) -> Any:
    """Ask the camera's process; return its answer as builtins.

    Raises LinkError if nobody answers in time, CameraError with the reason if it refuses.
    """
    data = msgspec.msgpack.encode(_Question(name, arguments))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.settimeout(timeout_s)
        try:
            channel.connect(str(path))
            channel.send(data)
            answered = channel.recv(MAX_BYTES)
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else error.strerror
            raise LinkError(f"camera process at {path}: {why} ({timeout_s:g} s)") from error
    try:
        reply = msgspec.msgpack.decode(answered, type=_Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LinkError(f"camera process at {path}: it ended before its answer") from error
    if reply.error:
        raise CameraError(reply.error)
    return reply.result


def camera_status(path: Path, *, timeout_s: float = 1.0) -> CameraStatus:
    """Return the status of the camera's process. Raises LinkError if nobody answers in time."""
    found = ask(path, "status", timeout_s=timeout_s)
    try:
        return msgspec.convert(found, CameraStatus, strict=False)
    except msgspec.ValidationError as error:
        raise LinkError(f"camera process at {path} is of another version: {error}") from error


class ControlServer(Closing):
    """Answers questions, each in a thread of its own. Raises CameraError if another one does.

    answers: by name; what one raises of ours is its refusal.
    """

    def __init__(self, path: Path, answers: Mapping[str, Answer]) -> None:
        self._path, self._answers = path, answers
        self._free = threading.Semaphore(MAX_AT_ONCE)
        self._socket = _listen(path)
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._free.acquire()  # a crowd waits in the kernel, as long as each of it likes
            try:
                channel, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        try:
            channel.settimeout(READ_S)
            with contextlib.suppress(OSError):
                _send(channel, self._reply(channel.recv(MAX_BYTES)))
        finally:
            channel.close()
            self._free.release()

    def _reply(self, data: bytes) -> _Reply:
        try:
            question = msgspec.msgpack.decode(data, type=_Question)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _Reply(error=f"no question: {error}")
        answer = self._answers.get(question.ask)
        if answer is None:
            known = ", ".join(sorted(self._answers))
            return _Reply(error=f"no question {question.ask[:40]!r}; there are {known}")
        try:
            return _Reply(result=answer(question.arguments))
        except BlimpError as error:
            return _Reply(error=str(error) or type(error).__name__)
        except Exception as error:  # a bad argument ends no camera
            return _Reply(error=f"{question.ask}: {type(error).__name__}: {error}")

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._socket.close()
            self._path.unlink(missing_ok=True)


def _send(channel: socket.socket, reply: _Reply) -> None:
    with channel, contextlib.suppress(OSError):  # who asked has gone
        data = msgspec.msgpack.encode(reply)
        if len(data) > MAX_BYTES:
            data = msgspec.msgpack.encode(_Reply(error=f"the answer has {len(data)} bytes"))
        channel.send(data)


def _listen(path: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with contextlib.suppress(OSError), channel.dup() as probe:
            probe.settimeout(READ_S)
            probe.connect(str(path))
            raise CameraError(f"another camera process runs at {path}: end it first")
        channel.close()
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)  # of one that was killed
        channel.bind(str(path))
        path.chmod(0o660 if is_of_group(path.parent) else 0o600)
        channel.listen(MAX_AT_ONCE)
    except OSError as error:
        channel.close()
        why = errno.errorcode.get(error.errno or 0, "")
        raise CameraError(f"control socket {path}: {error.strerror} {why}".rstrip()) from error
    except CameraError:
        channel.close()
        raise
    return channel
