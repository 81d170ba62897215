"""A radio transmitter's sticks and switches: a second link to the ship, beside the broker's.

Who has the transmitter is a pilot as the holder of the ship's control is: commands that were
admitted under an older control are refused. Switches act when they are moved, so that none acts by
the place in which it was left; sticks act for half a second, and age out.
"""

from math import cos, hypot, inf, sin

from blimp.airframe import Airframe, Channel
from blimp.control.commander import Commander
from blimp.control.failsafe import Flags
from blimp.control.modes.manual import Order
from blimp.control.modes.sticks import Stick, Sticks
from blimp.control.modes.velocity import Velocity
from blimp.control.pilot import Pilot
from blimp.control.supervisor import Supervisor
from blimp.rotation import yaw_of
from blimp.types import Mode, TransmitterSample, VehicleState

SILENT_S = 0.5  # receivers send 70 to 500 frames a second
# A stick takes control once it has been out of the middle for so long, in so many frames: one that
# is broken, or a stick that is brushed, takes none.
_TAKES_S = 0.1
_TAKES_FRAMES = 5  # of 7 to 50 in that time
_ON = 0.4  # a switch is at -1, 0 or 1; one bit that is wrong moves a channel by 0.31
_HYSTERESIS = 0.1  # beyond the edge of a position of the mode switch, before it counts as left
_STICKS = ("forward", "right", "up", "turn")
_FLOWN_BY_STICK = (Mode.STABILIZE, Mode.ALTHOLD, Mode.VELOCITY)


class Transmitter:
    """`hear` the newest sample and `act` by it, once a cycle each."""

    def __init__(
        self,
        *,
        airframe: Airframe,
        commander: Commander,
        pilot: Pilot,
        supervisor: Supervisor,
    ) -> None:
        self._airframe = airframe
        self._table = airframe.transmitter
        self._commander = commander
        self._authority = commander.authority
        self._pilot = pilot
        self._supervisor = supervisor
        # Frames in which one of these is doubtful do not count at all.
        self._strict = {self._table.stop.channel}
        if self._table.takes_control != "never":
            self._strict.add(self._table.arm.channel)
        if self._table.takes_control == "switch":
            self._strict.add(self._table.control.channel)
        self._channels: tuple[float, ...] = ()
        self._doubted_s: dict[int, float] = {}  # since when, by channel
        self._heard_s = -inf
        self._frames = 0
        self._stop_s = -inf  # the newest sample that has the stop switch on; -inf: it is off
        self.stopped = False  # the stop switch is on
        self._stop_tried: bool | None = None  # False: it was on, True: and then off
        self.heard = False
        self._was_armed = False
        # What was seen since the transmitter is heard; None until then.
        self._arm: bool | None = None
        self._control: bool | None = None
        self._centred = False
        self._moved: tuple[float, int] | None = None  # time and frame at which a stick left it
        self._position: int | None = None  # of the mode switch
        self._asked: Mode | None = None  # for, since it has control
        self._again = False  # a stick that is moved asks for it again: refused, or flown no more

    def hear(self, sample: TransmitterSample | None, now_s: float) -> None:
        """Take the newest sample; one without channels is a transmitter lost at once."""
        if (
            sample is not None
            and sample.channels
            and sample.t_s != self._heard_s
            and not self._strict.intersection(sample.doubted)
        ):
            self._channels, self._heard_s = sample.channels, sample.t_s
            self._frames += 1
            since_s = self._doubted_s
            self._doubted_s = {n: since_s.get(n, sample.t_s) for n in sample.doubted}
        lost = sample is not None and not sample.channels
        stop = self._table.stop
        if sample is not None and sample.channels and stop.channel not in sample.doubted:
            self._stop_s = sample.t_s if _raw(stop, sample.channels) > _ON else -inf
        self.stopped = not lost and now_s - self._stop_s <= SILENT_S
        heard = not lost and now_s - self._heard_s <= SILENT_S
        if self.heard and not heard:
            # What was moved meanwhile must not arm, nor take control.
            self._arm = self._control = self._position = None
            self._centred, self._moved = False, None
            self._again = True  # a failsafe may have ended the mode
        self.heard, self._authority.silent = heard, not heard
        if not heard and not self._supervisor.armed:  # there is nothing to bring home
            self._heard_s = -inf
            self._authority.release()

    def age_s(self, now_s: float) -> float:
        """Return how old the pilot's newest sample is; infinite without control.

        A transmitter that is only switched on is no link of the one who flies from the ground.
        """
        return now_s - self._heard_s if self._authority.held else inf

    def lost_s(self, now_s: float) -> float | None:
        """Return for how long the transmitter that has control is not heard; None if it is."""
        return now_s - self._heard_s if self._authority.held and not self.heard else None

    @property
    def stops(self) -> bool:
        """Whether it is heard and its stop switch was seen on, and then off."""
        return self.heard and self._stop_tried is True

    def act(self, state: VehicleState, flags: Flags, *, now_s: float) -> None:
        """Carry out what the switches and sticks say now."""
        armed, was_armed = self._supervisor.armed, self._was_armed
        self._was_armed = armed
        if was_armed and not armed:  # that flight is over
            self._authority.release()
        if flags.stopped:
            self._stop_tried = self._stop_tried or False
            self._arm = None
            if not self._supervisor.killed:
                self._commander.obey("estop", now_s=now_s, state=state, flags=flags)
            return
        if not self.heard:
            return
        if self._stop_tried is False:
            self._stop_tried = True
        if self._table.takes_control == "never":
            return
        sticks = {name: self._stick(getattr(self._table, name)) for name in _STICKS}
        pushed = self._is_pushed(any(sticks.values()))
        self._note_control(pushed, state)
        self._note_arm(sticks, state, flags, now_s)
        if self._supervisor.armed and self._authority.held:
            self._fly(sticks, pushed, state, flags, now_s)

    def _is_pushed(self, moved: bool) -> bool:
        """Say once that a stick which was seen in the middle has been out of it for long enough."""
        if not moved:
            self._centred, self._moved = True, None
        if not moved or not self._centred:
            return False
        if self._moved is None:
            self._moved = self._heard_s, self._frames
        since_s, frame = self._moved
        pushed = self._heard_s - since_s >= _TAKES_S and self._frames - frame >= _TAKES_FRAMES - 1
        self._centred = not pushed
        return pushed

    def _note_control(self, pushed: bool, state: VehicleState) -> None:
        """Take control, or give it up, by what was moved."""
        table = self._table
        position, before = self._switched(), self._position
        self._position = position
        is_on, was_on = self._is_on(table.control), self._control
        self._control = is_on
        if table.takes_control == "switch":
            takes = is_on and was_on is False
            if not is_on and self._authority.held:
                self._authority.release()
                reason = "the transmitter gives up control"
                self._supervisor.say(reason)
                self._pilot.abandon(state, reason=reason)
        else:
            takes = pushed or (before is not None and position != before)
        if takes and self._supervisor.armed:
            self._take()

    def _take(self) -> None:
        if not self._authority.held:
            self._authority.take()
            self._asked = None
            self._supervisor.say("the transmitter has control")

    def _note_arm(
        self, sticks: dict[str, float], state: VehicleState, flags: Flags, now_s: float
    ) -> None:
        """Arm or disarm when the switch is moved: where it was left says nothing."""
        is_on, was_on = self._is_on(self._table.arm), self._arm
        self._arm = is_on
        if was_on is None or is_on == was_on:
            return
        if self._table.takes_control == "switch" and not self._control:
            return
        if not is_on and not self._authority.held:
            return
        name, reason = ("arm" if is_on else "disarm"), ""
        if is_on and any(sticks.values()):
            off = ", ".join(stick for stick, share in sticks.items() if share)
            reason = f"put the sticks in the middle first ({off})"
        reason = reason or self._commander.obey(name, now_s=now_s, state=state, flags=flags)
        if reason:
            self._supervisor.say(f"transmitter: {name} refused: {reason}")
        elif is_on:
            self._take()

    def _fly(
        self,
        sticks: dict[str, float],
        pushed: bool,
        state: VehicleState,
        flags: Flags,
        now_s: float,
    ) -> None:
        mode = Mode[self._table.mode_names[self._position or 0]]
        pilot, reason = self._pilot, ""
        if pilot.rests(state):
            # On the ground a stick lifts the ship, and no switch.
            self._asked = None
            if mode is Mode.MANUAL and any(sticks.values()):
                reason = self._enter(mode, state, flags, now_s)
            elif mode in _FLOWN_BY_STICK and sticks["up"] > 0.0:
                reason = self._commander.lift(mode, now_s=now_s, state=state, flags=flags)
                self._asked = None if reason else mode
            else:
                return
        elif mode is not self._asked or (self._again and pushed and not self._flies(mode)):
            # A refusal is not asked again by itself: that would be no word of the pilot's.
            reason = self._enter(mode, state, flags, now_s)
        if reason:
            self._supervisor.say(f"transmitter: {mode.name} refused: {reason}")
        self._again = self._again and not self._flies(mode)
        self._push(sticks, state, now_s)

    def _flies(self, mode: Mode) -> bool:
        flying = self._pilot.flying  # without a demand VELOCITY shows itself as LOITER
        return flying.number is mode or (mode is Mode.VELOCITY and isinstance(flying, Velocity))

    def _enter(self, mode: Mode, state: VehicleState, flags: Flags, now_s: float) -> str:
        self._asked = mode
        reason = self._commander.obey("mode", now_s=now_s, state=state, flags=flags, name=mode.name)
        self._again = bool(reason)
        return reason

    def _push(self, sticks: dict[str, float], state: VehicleState, now_s: float) -> None:
        """Pass the sticks on to the mode that flies, if it is one for sticks."""
        flying, until_s = self._pilot.flying, self._heard_s + SILENT_S
        if isinstance(flying, Sticks):
            flying.push(Stick(until_s=until_s, **sticks))
        elif isinstance(flying, Velocity) and any(sticks.values()):
            # Let go, they end the demand: the ship stays where it comes to rest.
            limits = self._airframe.limits
            forward, right, up = sticks["forward"], sticks["right"], sticks["up"]
            speed_mps = limits.speed_mps / max(1.0, hypot(forward, right))
            north, east = cos(yaw_of(state.attitude)), sin(yaw_of(state.attitude))
            flying.steer(
                state,
                (
                    speed_mps * (forward * north - right * east),
                    speed_mps * (forward * east + right * north),
                    -up * (limits.climb_mps if up > 0.0 else limits.descent_mps),
                ),
                turn_radps=sticks["turn"] * limits.yaw_rate_radps,
                seconds=until_s - now_s,
            )
        elif flying is self._pilot.manual:
            for name, shares in self._table.manual.items():
                share = sum(weight * sticks[stick] for stick, weight in shares.items())
                self._pilot.manual.order(
                    name,
                    Order(
                        value=self._value(name, max(-1.0, min(1.0, share))),
                        until_s=until_s,
                        started_s=now_s,
                        command_id="transmitter",
                    ),
                )

    def _value(self, name: str, share: float) -> float:
        """Return a throttle, or the servo's angle so far from neutral to its end."""
        for servo in self._airframe.servo:
            if servo.name == name:
                end_rad = servo.max_rad if share > 0.0 else servo.min_rad
                return servo.neutral_rad + abs(share) * (end_rad - servo.neutral_rad)
        return share

    def _stick(self, use: Channel) -> float:
        """Return a stick's share; one that has been doubtful for long is let go."""
        if self._heard_s - self._doubted_s.get(use.channel, inf) > SILENT_S:
            return 0.0
        value, dead = _raw(use, self._channels), self._table.deadband
        beyond = max(0.0, abs(value) - dead) / (1.0 - dead)
        return beyond if value > 0.0 else -beyond

    def _is_on(self, use: Channel) -> bool:
        return _raw(use, self._channels) > _ON

    def _switched(self) -> int:
        """Return the position of the mode switch, 0 for the lowest."""
        count, value = len(self._table.mode_names), _raw(self._table.modes, self._channels)
        place, before = min(count - 1, int(count * (value + 1.0) / 2.0)), self._position
        if before is None or place == before:
            return place
        # The edge that was passed on the way from the position before.
        edge = 2.0 * (before + (place > before)) / count - 1.0
        return place if abs(value - edge) > _HYSTERESIS else before


def _raw(use: Channel, channels: tuple[float, ...]) -> float:
    value = channels[use.channel - 1]
    return -value if use.reverse else value
