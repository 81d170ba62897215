"""The topics of a log: their JSON schemas, and how a tape becomes their messages.

Foxglove and PlotJuggler read JSON (message encoding "json", schema encoding "jsonschema"). What
Foxglove's parser of schemas demands holds here: no reference, no null, each object with
`properties`. A number that is not known is left out. README of the format: docs/log.md.
"""

from collections.abc import Iterator
from math import isnan
from typing import Any, NamedTuple

import msgspec

from blimp.link.timeline import Happening, fault_of
from blimp.recording.tape import (
    ARMED,
    CONTACT,
    CONTACTS,
    CYCLE,
    CYCLE_END,
    IDLE,
    ON_GROUND,
    Kind,
    Session,
    picture_of,
)
from blimp.rotation import euler
from blimp.types import Command, Outcome, Snapshot

NS = 1_000_000_000
INFO, WARNING = 2, 3  # levels of foxglove.Log

CAMERA = "/camera"

Schema = dict[str, Any]
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_VECTOR: Schema = {"type": "array", "items": _NUMBER}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


_ATTITUDE = _object(roll=_NUMBER, pitch=_NUMBER, yaw=_NUMBER)


def schemas(session: Session) -> dict[str, tuple[str, Schema]]:
    """Return the name and the JSON schema of every topic. Units stand in the fields' names."""
    actuators = _object(**dict.fromkeys(session.actuators, _NUMBER))
    return {
        "/snapshot": ("blimp.Snapshot", _object(
            t_s=_NUMBER, cycle=_COUNT, armed=_FLAG, on_ground=_FLAG, contact=_TEXT, idle=_FLAG,
            position_ned_m=_VECTOR, velocity_ned_mps=_VECTOR, attitude_rad=_ATTITUDE,
            rates_body_radps=_VECTOR,
            setpoint=_object(
                north_m=_NUMBER, east_m=_NUMBER, down_m=_NUMBER, velocity_ned_mps=_VECTOR,
                yaw_rad=_NUMBER, yaw_rate_radps=_NUMBER,
            ),
            actuators=actuators, step_ms=_NUMBER, digest=_COUNT,
        )),
        "/status": ("blimp.Status", _object(
            t_s=_NUMBER, boot_id=_TEXT, vehicle=_TEXT, mode=_TEXT, armed=_FLAG, killed=_FLAG,
            failsafe=_TEXT, position_ned_m=_VECTOR, velocity_ned_mps=_VECTOR, altitude_m=_NUMBER,
            attitude_rad=_ATTITUDE, battery_v=_NUMBER, current_a=_NUMBER,
            actuators=actuators, sensors=_object(),
            loop=_object(rate_hz=_NUMBER, cycles=_COUNT, overruns=_COUNT), simulated=_FLAG,
            active_command=_TEXT, messages=_TEXTS, link_age_s=_NUMBER, deaf=_TEXT,
            pilot_age_s=_NUMBER, contact=_TEXT,
            heaviness_kg=_NUMBER, wind_ned_mps=_VECTOR, wind_age_s=_NUMBER, health=_object(),
        )),
        "/command": ("blimp.Command", _object(
            t_s=_NUMBER, cycle=_COUNT, id=_TEXT, name=_TEXT, arguments=_object(), fence=_COUNT,
            age_s=_NUMBER, ttl_s=_NUMBER, boot_id=_TEXT, source=_TEXT, sent_s=_NUMBER,
            authority=_NUMBER, trace=_TEXT,
        )),
        "/outcome": ("blimp.Outcome", _object(
            t_s=_NUMBER, cycle=_COUNT, id=_TEXT, state=_TEXT, reason=_TEXT, fraction=_NUMBER,
            result=_object(), accepted_s=_NUMBER, boot_id=_TEXT,
        )),
        "/event": ("foxglove.Log", _object(
            timestamp=_object(sec=_COUNT, nsec=_COUNT), level=_COUNT, message=_TEXT, name=_TEXT,
            file=_TEXT, line=_COUNT, t_s=_NUMBER, id=_TEXT, by=_TEXT, command=_TEXT,
        )),
        "/fault": ("blimp.Fault", _object(t_s=_NUMBER, device=_TEXT, active=_FLAG, text=_TEXT)),
        "/injected": ("blimp.Injected", _object(
            t_s=_NUMBER, cycle=_COUNT, what=_TEXT, device=_TEXT, kind=_TEXT, options=_object(),
        )),
        # New topics go to the end: a log's channels are numbered in this order.
        "/truth": ("blimp.Truth", _object(
            t_s=_NUMBER, position_ned_m=_VECTOR, velocity_ned_mps=_VECTOR,
            attitude_rad=_ATTITUDE,
        )),
        # Of this name Foxglove shows it as a picture.
        CAMERA: ("foxglove.CompressedImage", _object(
            timestamp=_object(sec=_COUNT, nsec=_COUNT), frame_id=_TEXT,
            data={"type": "string", "contentEncoding": "base64"}, format=_TEXT,
        )),
    }  # fmt: skip


class Message(NamedTuple):
    """One message of a log. time_ns: since the Unix epoch. data: JSON."""

    topic: str
    time_ns: int
    data: bytes


class Translator:
    """Turns the records of one session's tape into messages; faults come out of it.

    is_timed: whether the time is known. A flight in lockstep begins at 0. Another one has the time
    since its machine's boot, and its first record may be a command: it waits for a cycle.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.t_s = 0.0  # of the last cycle, or status before the first
        self.is_timed = session.lockstep
        self.armed = False
        self._waiting: list[Command | Outcome | Happening] = []
        self._epoch_ns = int(session.epoch_s * NS)
        self._cycle = 0
        self._before: Snapshot | None = None
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Command | Outcome | Snapshot | Happening).decode
        self._end = CYCLE.size + 8 * len(session.actuators)

    def messages(self, kind: int, payload: bytes) -> Iterator[Message]:
        """Yield what a record stands for; nothing for one that cannot be read."""
        if kind == Kind.CYCLE and len(payload) == self._end + CYCLE_END.size:
            t_s, number = CYCLE.unpack_from(payload)[:2]
            yield from self._now(t_s, number)
            yield self._snapshot(payload)
        elif kind == Kind.INJECTED:
            yield self._message("/injected", payload)
        elif kind == Kind.TRUTH and self.is_timed:
            time_ns = self._epoch_ns + int(msgspec.json.decode(payload)["t_s"] * NS)
            yield Message("/truth", time_ns, payload)
        elif kind == Kind.PICTURE and self.is_timed:
            yield self._picture(*picture_of(payload))
        elif kind == Kind.MESSAGE:
            message = self._decode(payload)
            if isinstance(message, Snapshot):
                yield from self._now(message.t_s, self._cycle + 1)
                yield from self._faults(message)
                self._before = message
                yield self._message("/status", self._encode(_rounded_status(payload)))
            elif self.is_timed:
                yield self._mail(message, self._cycle + 1)
            else:
                self._waiting.append(message)

    def _now(self, t_s: float, next_cycle: int) -> Iterator[Message]:
        """Take the time, and yield what has waited for one."""
        self.t_s, self.is_timed = t_s, True
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            yield self._mail(message, next_cycle)

    def _mail(self, message: Command | Outcome | Happening, cycle: int) -> Message:
        """Return a command, an outcome or a happening. cycle: the next one, where it acts."""
        if isinstance(message, Happening):
            level = WARNING if message.is_fault else INFO
            about = {"id": message.id, "by": message.by, "command": message.command}
            return self._event(message.kind, message.text, message.t_s, level=level, **about)
        topic = "/command" if isinstance(message, Command) else "/outcome"
        fields = {"t_s": round(self.t_s, 4), "cycle": cycle, **_known(message)}
        return self._message(topic, self._encode(fields))

    def event(self, name: str, text: str, *, level: int = INFO) -> Message:
        """Return an event of the recording itself, at the time of the last record."""
        return self._event(name, text, self.t_s, level=level)

    def _event(self, name: str, text: str, t_s: float, *, level: int, **about: str) -> Message:
        at_ns = self._epoch_ns + int(t_s * NS)  # what was sent later has its own time
        fields = {
            "timestamp": {"sec": at_ns // NS, "nsec": at_ns % NS}, "level": level,
            "message": text, "name": name, "file": "", "line": 0, "t_s": round(t_s, 4), **about,
        }  # fmt: skip
        return self._message("/event", self._encode(fields))

    def _snapshot(self, payload: bytes) -> Message:
        values = CYCLE.unpack_from(payload)
        t_s, self._cycle = values[:2]
        numbers = [round(value, 4) for value in values[2:-1]]
        flags = values[-1]
        self.armed = bool(flags & ARMED)
        roll, pitch, yaw = euler(values[8:12])
        setpoint: dict[str, Any] = {
            name: value
            for name, value in zip(("north_m", "east_m", "down_m"), numbers[13:16], strict=True)
            if not isnan(value)
        }
        setpoint["velocity_ned_mps"] = numbers[16:19]
        if not isnan(numbers[19]):
            setpoint["yaw_rad"] = numbers[19]
        setpoint["yaw_rate_radps"] = numbers[20]
        actuators = memoryview(payload)[CYCLE.size : self._end].cast("d")
        step_s, digest = CYCLE_END.unpack_from(payload, self._end)
        fields = {
            "t_s": round(t_s, 4),
            "cycle": self._cycle,
            "armed": self.armed,
            "on_ground": bool(flags & ON_GROUND),
            "contact": CONTACTS[flags // CONTACT % len(CONTACTS)],
            "idle": bool(flags & IDLE),
            "position_ned_m": numbers[0:3],
            "velocity_ned_mps": numbers[3:6],
            "attitude_rad": {
                "roll": round(roll, 4), "pitch": round(pitch, 4), "yaw": round(yaw, 4),
            },
            "rates_body_radps": numbers[10:13],
            "setpoint": setpoint,
            "actuators": {
                name: round(value, 4)
                for name, value in zip(self.session.actuators, actuators, strict=True)
            },
            "step_ms": round(1e3 * step_s, 3),
            "digest": digest,
        }  # fmt: skip
        return self._message("/snapshot", self._encode(fields))

    def _picture(self, t_s: float, jpeg: bytes) -> Message:
        at_ns = self._epoch_ns + int(t_s * NS)
        fields = {
            "timestamp": {"sec": at_ns // NS, "nsec": at_ns % NS},
            "frame_id": "camera", "data": jpeg, "format": "jpeg",
        }  # fmt: skip
        return Message(CAMERA, at_ns, self._encode(fields))

    def _faults(self, now: Snapshot) -> Iterator[Message]:
        """Yield a message for each device that fails, or works again."""
        for device, status in now.sensors.items():
            known = None if self._before is None else self._before.sensors.get(device)
            fault = fault_of(status)
            if bool(fault) != bool(known and fault_of(known)):
                fields = {"device": device, "active": bool(fault), "text": fault}
                data = self._encode({"t_s": round(now.t_s, 4), **fields})
                yield self._message("/fault", data)

    def _message(self, topic: str, data: bytes) -> Message:
        return Message(topic, self._time_ns(), data)

    def _time_ns(self) -> int:
        return self._epoch_ns + int(self.t_s * NS)


def _known(message: Command | Outcome) -> dict[str, Any]:
    """Return its fields as JSON has them, without its type and those that are None."""
    fields = msgspec.to_builtins(message)
    return {name: value for name, value in fields.items() if value is not None and name != "type"}


def _rounded_status(data: bytes) -> Any:
    """Return a snapshot with as many digits as anybody can use, which is half of its size.

    Sensors keep 8 significant digits: a GPS position is degrees. The others have 4 decimals.
    """
    fields = msgspec.json.decode(data)
    del fields["type"]
    return {
        name: _rounded(value, significant=name == "sensors")
        for name, value in fields.items()
        if value is not None
    }


def _rounded(value: Any, *, significant: bool) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}") if significant else round(value, 4)
    if isinstance(value, list):
        return [_rounded(one, significant=significant) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one, significant=significant) for name, one in value.items()}
    return value
