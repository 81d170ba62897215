"""What a simulated world and its clients say to each other: frames on a Unix stream socket.

A frame is its length (4 bytes, little-endian) and one msgpack array whose first item is the
number of its kind. Requests that expect an answer are answered in order; those marked "no
answer" are not. Pulses and serial bytes come unasked, to a connection that has subscribed.
"""

import struct
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blimp.sim.electrical import Cameras, CameraSight
from blimp.types import ZERO3, Vec3, VehicleState

MAX_FRAME_BYTES = 64 * 1024
_LENGTH = struct.Struct("<I")

Pin = Annotated[int, Meta(ge=0, le=27)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all frames."""


# --- client to world --------------------------------------------------------------------------


class I2cTransfer(_Frame, frozen=True, tag=1):
    """Answer: Data or Failed."""

    bus: int
    address: Annotated[int, Meta(ge=0, le=0x7F)]
    data: Annotated[bytes, Meta(max_length=8192)]
    length: Annotated[int, Meta(ge=0, le=8192)]


class PinMode(_Frame, frozen=True, tag=2):
    """No answer."""

    pin: Pin
    output: bool
    pull: Annotated[int, Meta(ge=0, le=2)]


class PinWrite(_Frame, frozen=True, tag=3):
    """No answer."""

    pin: Pin
    high: bool
    held_s: Seconds


class PinPwm(_Frame, frozen=True, tag=4):
    """No answer. duty is None where the modulation stops."""

    pin: Pin
    duty: Share | None
    frequency_hz: Annotated[float, Meta(ge=0.0, le=1e9)]


class PinRead(_Frame, frozen=True, tag=5):
    """Answer: PinState."""

    pin: Pin


class SerialWrite(_Frame, frozen=True, tag=6):
    """No answer."""

    port: str
    data: bytes


class Subscribe(_Frame, frozen=True, tag=7):
    """From now on push the pulses on these pins and the bytes of these ports. No answer."""

    pins: tuple[Pin, ...]
    ports: tuple[str, ...]


class AskBoard(_Frame, frozen=True, tag=8):
    """Answer: Board."""


class AskTruth(_Frame, frozen=True, tag=9):
    """Answer: Truth."""


class SetFault(_Frame, frozen=True, tag=11):
    """Answer: Done or Refused."""

    device: str
    kind: str
    options: dict[str, Any]


class SetHeld(_Frame, frozen=True, tag=13):
    """A person holds the ship, or lets go of it. Answer: Done."""

    held: bool


class SpiTransfer(_Frame, frozen=True, tag=12):
    """Answer: Data, as long as `data`."""

    bus: Annotated[int, Meta(ge=0, le=9)]
    select: Annotated[int, Meta(ge=0, le=9)]
    data: Annotated[bytes, Meta(max_length=8192)]


class SetAir(_Frame, frozen=True, tag=14):
    """Let the air or the gas do something; see `World.air`. Answer: Done or Refused."""

    kind: str
    options: dict[str, float]


class AskCameras(_Frame, frozen=True, tag=15):
    """Answer: AllCameras."""


class AskCamera(_Frame, frozen=True, tag=16):
    """Open a camera for this connection, or look through it. Answer: CameraSeen or Failed."""

    number: Annotated[int, Meta(ge=0, le=9)]
    since_s: float


class CloseCamera(_Frame, frozen=True, tag=17):
    """No answer."""

    number: Annotated[int, Meta(ge=0, le=9)]


Request = (
    I2cTransfer
    | SpiTransfer
    | PinMode
    | PinWrite
    | PinPwm
    | PinRead
    | SerialWrite
    | Subscribe
    | AskBoard
    | AskTruth
    | SetFault
    | SetHeld
    | SetAir
    | AskCameras
    | AskCamera
    | CloseCamera
)


# --- world to client --------------------------------------------------------------------------


class Data(_Frame, frozen=True, tag=64):
    data: bytes


class Failed(_Frame, frozen=True, tag=65):
    """The transfer ended as the kernel would end it."""

    errno: int


class PinState(_Frame, frozen=True, tag=66):
    high: bool
    output: bool


class Board(_Frame, frozen=True, tag=67):
    """pwm: chip, channel and pin of each channel of hardware PWM. spi: bus and chip select."""

    buses: tuple[int, ...]
    ports: dict[str, int]
    pwm: tuple[tuple[int, int, int], ...]
    spi: tuple[tuple[int, int], ...]


class Truth(_Frame, frozen=True, tag=68):
    """What no part of the flight control sees; all of one instant.

    outputs: the throttle that reaches each motor, and each servo's angle in radians.
    wind_ned_mps: the mean wind. heaviness_kg: weight less buoyancy, over g.
    """

    state: VehicleState
    outputs: dict[str, float]
    outputs_safe: bool
    wind_ned_mps: Vec3 = ZERO3
    heaviness_kg: float = 0.0


class Done(_Frame, frozen=True, tag=70):
    pass


class Refused(_Frame, frozen=True, tag=71):
    reason: str


class AllCameras(_Frame, frozen=True, tag=72):
    cameras: Cameras


class CameraSeen(_Frame, frozen=True, tag=73):
    sight: CameraSight


class Pulse(_Frame, frozen=True, tag=80):
    """Pushed as soon as it is known: when a pin rises and falls, on the machine's clock."""

    pin: int
    rise_s: float
    fall_s: float


class SerialBytes(_Frame, frozen=True, tag=81):
    """Pushed when the bytes have arrived."""

    port: str
    data: bytes


Reply = (
    Data | Failed | PinState | Board | Truth | Done | Refused | AllCameras | CameraSeen | Pulse
    | SerialBytes
)  # fmt: skip

decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
_encode = msgspec.msgpack.Encoder().encode


def frame(message: Request | Reply) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameBuffer:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that are now complete. Raises ValueError on an oversized frame."""
        buffer = self._bytes
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes; the limit is {MAX_FRAME_BYTES}")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return bodies
