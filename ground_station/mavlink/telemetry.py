"""What a snapshot means in MAVLink: one function a message, and how often each is sent."""

import math
from collections.abc import Callable, Collection

import msgspec

from blimp.actions import MODE_NEEDS, Need
from blimp.airframe import Home
from blimp.types import Mode, Snapshot
from ground_station.mavlink.modes import BY_NAME, MODES
from ground_station.mavlink.wire import Message, message, number_of

AIRSHIP, GENERIC = 7, 0  # MAV_TYPE, MAV_AUTOPILOT
STANDBY, ACTIVE, CRITICAL, TERMINATED = 3, 4, 5, 8  # MAV_STATE
CUSTOM, ARMED = 1, 128  # MAV_MODE_FLAG
ON_GROUND, IN_AIR, TAKING_OFF, LANDING = 1, 2, 3, 4  # MAV_LANDED_STATE
_RESTS_M, _RESTS_MPS = 0.3, 0.15  # lower and slower than this, an armed ship stands
# MAV_SYS_STATUS_SENSOR of what the estimate uses.
_GYRO, _ACCEL, _PRESSURE, _GPS, _YAW, _HEIGHT = 1, 2, 8, 32, 4096, 8192
_FENCE = 2**20  # always there: the airframe's limits are one
OUTSIDE = "outside the fence"  # how the failsafe's name begins
_NOT_SELECTABLE = 2  # MAV_MODE_PROPERTY_NOT_USER_SELECTABLE
_UNKNOWN16, _UNKNOWN_MM = 65535, 2**31 - 1
# ESTIMATOR_STATUS_FLAGS: attitude, velocity level and vertical, place relative and absolute, height
_ESTIMATES = ((1, "attitude"), (2, "velocity"), (4, "climb"), (8, "position"), (16, "position"),
              (32, "height"))  # fmt: skip


class Seen(msgspec.Struct, frozen=True):
    """A snapshot, and what else the messages need.

    flown_by: the mode of a station that is under way, AUTO or VELOCITY: its places are flown in
    LOITER, and a station that sees another mode than it began takes it for over.
    full_v, empty_v: voltages of a full and an empty battery.
    """

    ship: Snapshot
    home: Home
    flown_by: Mode | None = None
    full_v: float = 0.0
    empty_v: float = 0.0

    @property
    def boot_ms(self) -> int:
        return int(1e3 * self.ship.t_s) % 2**32

    @property
    def mode(self) -> Mode:
        return self.flown_by or BY_NAME[self.ship.mode].mode

    @property
    def landed(self) -> int:
        ship = self.ship
        slow = math.hypot(*ship.velocity_ned_mps) < _RESTS_MPS
        if not ship.armed or (ship.altitude_m < _RESTS_M and slow):
            return ON_GROUND
        if ship.mode == Mode.LAND.name:
            return LANDING
        return TAKING_OFF if ship.active_command.startswith("takeoff") else IN_AIR

    @property
    def battery_percent(self) -> int:
        """By voltage, between empty and full; -1 if it is not known."""
        volts = self.ship.battery_v
        if volts is None or self.full_v <= self.empty_v:
            return -1
        share = (volts - self.empty_v) / (self.full_v - self.empty_v)
        return round(100.0 * min(1.0, max(0.0, share)))


def heartbeat(at: Seen) -> Message:
    ship = at.ship
    state = (
        TERMINATED if ship.killed else CRITICAL if ship.failsafe else ACTIVE if ship.armed
        else STANDBY
    )  # fmt: skip
    return message(
        "heartbeat", type=AIRSHIP, autopilot=GENERIC, system_status=state, mavlink_version=3,
        base_mode=CUSTOM | (ARMED if ship.armed else 0), custom_mode=BY_NAME[at.mode.name].custom,
    )  # fmt: skip


def sys_status(at: Seen) -> Message:
    ship, health = at.ship, at.ship.health
    present = _GYRO | _ACCEL | _PRESSURE | _GPS | _YAW | _HEIGHT | _FENCE
    doubts = (
        (_GYRO | _ACCEL, health.attitude), (_PRESSURE | _HEIGHT, health.height),
        (_GPS, health.position), (_YAW, health.heading),
    )  # fmt: skip
    bad = sum(bits for bits, quantity in doubts if quantity.doubt)
    bad |= _FENCE if ship.failsafe.startswith(OUTSIDE) else 0
    return message(
        "sys_status", onboard_control_sensors_present=present,
        onboard_control_sensors_enabled=present, onboard_control_sensors_health=present & ~bad,
        load=0, voltage_battery=_millivolts(ship.battery_v), battery_remaining=at.battery_percent,
        current_battery=_centiamperes(ship.current_a), drop_rate_comm=0,
        errors_comm=0, errors_count1=0, errors_count2=0, errors_count3=0, errors_count4=0,
    )  # fmt: skip


def battery_status(at: Seen) -> Message:
    return message(
        "battery_status", id=0, battery_function=1, type=1, temperature=2**15 - 1,
        voltages=[_millivolts(at.ship.battery_v)] + [_UNKNOWN16] * 9,
        current_battery=_centiamperes(at.ship.current_a), current_consumed=-1, energy_consumed=-1,
        battery_remaining=at.battery_percent,
    )  # fmt: skip


def attitude(at: Seen) -> Message:
    angle = at.ship.attitude_rad
    return message(
        "attitude", time_boot_ms=at.boot_ms, roll=angle.roll, pitch=angle.pitch, yaw=angle.yaw,
        rollspeed=math.nan, pitchspeed=math.nan, yawspeed=math.nan,
    )  # fmt: skip


def attitude_quaternion(at: Seen) -> Message:
    q1, q2, q3, q4 = rotation(at)
    return message(
        "attitude_quaternion", time_boot_ms=at.boot_ms, q1=q1, q2=q2, q3=q3, q4=q4,
        rollspeed=math.nan, pitchspeed=math.nan, yawspeed=math.nan,
    )  # fmt: skip


def rotation(at: Seen) -> list[float]:
    """Return the attitude as a quaternion, w first."""
    angle = at.ship.attitude_rad
    (cr, sr), (cp, sp), (cy, sy) = (
        (math.cos(a / 2.0), math.sin(a / 2.0)) for a in (angle.roll, angle.pitch, angle.yaw)
    )
    return [
        cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy, cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    ]  # fmt: skip


def place_of(at: Seen) -> dict[str, int]:
    """Return where the ship is, as messages have it: degrees times 1e7, millimetres."""
    north_m, east_m, _ = at.ship.position_ned_m
    latitude, longitude = at.home.global_deg(north_m, east_m)
    height_m = at.ship.altitude_m
    return {
        "lat": _e7(latitude), "lon": _e7(longitude),
        "alt": int(1e3 * (at.home.altitude_msl_m + height_m)), "relative_alt": int(1e3 * height_m),
    }  # fmt: skip


def local_position_ned(at: Seen) -> Message:
    (x, y, z), (vx, vy, vz) = at.ship.position_ned_m, at.ship.velocity_ned_mps
    return message(
        "local_position_ned", time_boot_ms=at.boot_ms, x=x, y=y, z=z, vx=vx, vy=vy, vz=vz
    )


def global_position_int(at: Seen) -> Message:
    vx, vy, vz = (int(100.0 * v) for v in at.ship.velocity_ned_mps)
    return message(
        "global_position_int", time_boot_ms=at.boot_ms, **place_of(at),
        vx=vx, vy=vy, vz=vz, hdg=int(100.0 * _heading_deg(at)) % 36000,
    )  # fmt: skip


def gps_raw_int(at: Seen) -> Message:
    """Of the estimate: stations take a ship without this message for one without a place."""
    place = at.ship.health.position
    north_m, east_m, _ = at.ship.position_ned_m
    latitude, longitude = at.home.global_deg(north_m, east_m)
    vx, vy, _ = at.ship.velocity_ned_mps
    return message(
        "gps_raw_int", time_usec=int(1e6 * at.ship.t_s), fix_type=1 if place.doubt else 3,
        lat=_e7(latitude), lon=_e7(longitude),
        alt=int(1e3 * (at.home.altitude_msl_m + at.ship.altitude_m)), eph=_UNKNOWN16,
        epv=_UNKNOWN16, vel=int(100.0 * math.hypot(vx, vy)), satellites_visible=255,
        cog=int(100.0 * math.degrees(math.atan2(vy, vx))) % 36000,
        h_acc=int(1e3 * min(place.sigma, 1e6)),
    )  # fmt: skip


def vfr_hud(at: Seen) -> Message:
    vx, vy, vz = at.ship.velocity_ned_mps
    wind = at.ship.wind_ned_mps
    air = (vx, vy, vz) if wind is None else (vx - wind[0], vy - wind[1], vz - wind[2])
    motors = [abs(v) for name, v in at.ship.actuators.items() if name not in at.ship.servos]
    return message(
        "vfr_hud", airspeed=math.hypot(*air), groundspeed=math.hypot(vx, vy),
        heading=int(_heading_deg(at)) % 360, throttle=int(100.0 * max(motors, default=0.0)),
        alt=at.home.altitude_msl_m + at.ship.altitude_m, climb=-vz,
    )  # fmt: skip


def home_position(at: Seen) -> Message:
    home = at.home
    return message(
        "home_position", latitude=_e7(home.latitude_deg), longitude=_e7(home.longitude_deg),
        altitude=int(1e3 * home.altitude_msl_m), x=0.0, y=0.0, z=0.0, q=[1.0, 0.0, 0.0, 0.0],
        approach_x=math.nan, approach_y=math.nan, approach_z=math.nan,
        time_usec=int(1e6 * at.ship.t_s),
    )  # fmt: skip


def gps_global_origin(at: Seen) -> Message:
    home = at.home
    return message(
        "gps_global_origin", latitude=_e7(home.latitude_deg), longitude=_e7(home.longitude_deg),
        altitude=int(1e3 * home.altitude_msl_m),
    )  # fmt: skip


def estimator_status(at: Seen) -> Message:
    health = at.ship.health
    flags = sum(bit for bit, name in _ESTIMATES if not getattr(health, name).doubt)
    nan = math.nan
    return message(
        "estimator_status", time_usec=int(1e6 * at.ship.t_s), flags=flags, vel_ratio=nan,
        pos_horiz_ratio=nan, pos_vert_ratio=nan, mag_ratio=nan, hagl_ratio=nan, tas_ratio=nan,
        pos_horiz_accuracy=health.position.sigma, pos_vert_accuracy=health.height.sigma,
    )  # fmt: skip


def extended_sys_state(at: Seen) -> Message:
    return message("extended_sys_state", vtol_state=0, landed_state=at.landed)


def current_mode(at: Seen) -> Message:
    row = BY_NAME[at.mode.name]
    return message(
        "current_mode", standard_mode=row.standard, custom_mode=row.custom,
        intended_custom_mode=row.custom,
    )  # fmt: skip


def available_modes(lacks: Collection[Need]) -> list[Message]:
    """Return one message for each mode: none can be selected whose needs the ship lacks."""
    withheld = {Mode.AUTO, *(mode for mode, needs in MODE_NEEDS.items() if {*needs} & {*lacks})}
    return [
        message(
            "available_modes", number_modes=len(MODES), mode_index=number, custom_mode=row.custom,
            standard_mode=row.standard,
            properties=_NOT_SELECTABLE if row.mode in withheld else 0,
            mode_name=row.mode.name.encode(),
        )
        for number, row in enumerate(MODES, start=1)
    ]  # fmt: skip


def statustexts(severity: int, words: str, *, id: int) -> list[Message]:
    """Return a text in pieces of 50 letters, with one `id` if there are several."""
    raw = words.encode("ascii", "replace")[:500]
    pieces = [raw[k : k + 50] for k in range(0, len(raw), 50)] or [b""]
    if len(pieces) > 1 and len(pieces[-1]) == 50:
        pieces.append(b"")  # a piece that is full says that another comes
    chunk_id = id if len(pieces) > 1 else 0
    return [
        message("statustext", severity=severity, text=piece, id=chunk_id, chunk_seq=number)
        for number, piece in enumerate(pieces)
    ]


# Each stream: its seconds between two messages at first, 0 for only when asked.
STREAMS: dict[str, tuple[Callable[[Seen], Message], float]] = {
    "heartbeat": (heartbeat, 1.0),
    "sys_status": (sys_status, 1.0),
    "battery_status": (battery_status, 1.0),
    "attitude": (attitude, 0.1),
    "attitude_quaternion": (attitude_quaternion, 0.0),
    "local_position_ned": (local_position_ned, 0.2),
    "global_position_int": (global_position_int, 0.2),
    "gps_raw_int": (gps_raw_int, 0.5),
    "vfr_hud": (vfr_hud, 0.25),
    "home_position": (home_position, 2.0),
    "gps_global_origin": (gps_global_origin, 5.0),
    "estimator_status": (estimator_status, 1.0),
    "extended_sys_state": (extended_sys_state, 0.5),
    "current_mode": (current_mode, 1.0),
}
BY_NUMBER = {number_of(name): name for name in STREAMS}
MAX_HZ = 20.0  # as often as a ship tells of itself


class Streams:
    """When each message is due. Times in seconds on any one clock."""

    def __init__(self) -> None:
        self.period_s = {name: period_s for name, (_, period_s) in STREAMS.items()}
        self._due_s = dict.fromkeys(STREAMS, 0.0)

    def due(self, now_s: float) -> list[str]:
        """Return what is to be sent now, and note that it is."""
        found = []
        for name, period_s in self.period_s.items():
            if period_s > 0.0 and now_s >= self._due_s[name]:
                self._due_s[name] = max(self._due_s[name] + period_s, now_s - period_s)
                found.append(name)
        return found

    def ask(self, name: str, interval_us: float) -> str:
        """Take MAV_CMD_SET_MESSAGE_INTERVAL; return why it is refused, "" if it is not."""
        if not (interval_us in (-1.0, 0.0) or 1e6 / MAX_HZ - 1.0 <= interval_us <= 3.6e9):
            return f"interval {interval_us:g} us, the limits are {1e6 / MAX_HZ:g} to 3.6e+09"
        if name == "heartbeat" and interval_us != 0.0 and interval_us != 1e6:
            return "the heartbeat comes once a second"
        first_s = STREAMS[name][1]
        self.period_s[name] = (
            first_s if interval_us == 0.0 else 0.0 if interval_us < 0.0 else interval_us * 1e-6
        )
        return ""


def _centiamperes(amps: float | None) -> int:
    """Return a battery's current as its messages have it: -1 is not measured, so 0 is the least."""
    return -1 if amps is None else int(max(0.0, min(100.0 * amps, 2**15 - 1)))


def _millivolts(volts: float | None) -> int:
    return _UNKNOWN16 if volts is None else int(min(1e3 * volts, _UNKNOWN16 - 1))


def _heading_deg(at: Seen) -> float:
    return math.degrees(at.ship.attitude_rad.yaw) % 360.0


def _e7(degrees: float) -> int:
    return round(1e7 * degrees)
