"""Puts one ship's control together."""

from collections.abc import Callable
from math import hypot, inf

from blimp.ability import lacking, lasts_s, max_wind_mps
from blimp.actions import Need
from blimp.airframe import Airframe
from blimp.control.actuation import Actuation
from blimp.control.battery import BatteryFilter
from blimp.control.commander import Commander
from blimp.control.controller import Controller
from blimp.control.effect import EffectCheck
from blimp.control.estimator import Estimator
from blimp.control.failsafe import Failsafe
from blimp.control.loop import FlightLoop, Inbox, Outputs, Sensors
from blimp.control.mixer import Mixer
from blimp.control.modes.mode import Ship
from blimp.control.pilot import Pilot
from blimp.control.power_check import PowerCheck
from blimp.control.recovery import Recovery, adrift, died_in_air, may_recover
from blimp.control.snapshot import RecordWriter, SnapshotBuilder
from blimp.control.supervisor import Supervisor
from blimp.control.timing import Timing
from blimp.control.transmitter import Transmitter
from blimp.types import FlightRecord

_STRAIGHT = 0.1  # of a push: so little aside is friction's
_WEAK = 0.7  # sideways force over forward force: below this a ship is steered by its nose


def build_flight_loop(
    airframe: Airframe,
    *,
    sensors: Sensors,
    outputs: Outputs,
    inbox: Inbox,
    vehicle: str,
    boot_id: str,
    rate_hz: float = 100.0,
    bench: bool = False,
    simulated: bool = False,
    recorder: Callable[[FlightRecord], object] | None = None,
    left: FlightRecord | None = None,
    left_age_s: float = 0.0,
    take_over: Callable[[Airframe], object] | None = None,
) -> FlightLoop:
    """Return a disarmed flight loop for `airframe`, to be stepped at `rate_hz`.

    bench: the ship is tied down: motor and servo commands work disarmed, arm may be forced.
    recorder: called with what a successor must know. left: the record of a flight process that
    died; it was so old when this one started. take_over: begins another flight loop with that
    airframe, disarmed, after the present cycle; None where nobody can.
    Raises AirframeError if the mixer cannot drive this geometry.
    """
    sensors = PowerCheck(sensors, outputs=outputs, airframe=airframe)
    mixer = Mixer(airframe=airframe)
    controller = Controller(
        airframe=airframe,
        force_limit_n=(mixer.limit_n(0), mixer.limit_n(1), mixer.limit_n(2)),
        yaw_limit_nm=mixer.limit_n(5),
        surge_n=(mixer.reach_n(0, 1.0), mixer.reach_n(0, -1.0)),
        heave_n=(mixer.reach_n(2, 1.0), mixer.reach_n(2, -1.0)),
    )
    estimator = Estimator(airframe=airframe)
    recovery = None
    if left is not None:
        estimator.begin_with(left, age_s=left_age_s)
        if died_in_air(left, age_s=left_age_s):
            may_land = may_recover(left, age_s=left_age_s, airframe=airframe)
            recovery = Recovery(left, airframe=airframe, may_land=may_land)
    effect = EffectCheck(airframe=airframe)
    battery = BatteryFilter(
        measured=Need.BATTERY not in lacking(airframe),
        flight_time_s=airframe.battery.flight_time_s,
    )

    def battery_s() -> float | None:
        if battery.volts is None or battery.amps is None or battery.amps <= 0.0:
            return None
        return lasts_s(airframe, battery_v=battery.volts, current_a=battery.amps)

    def grips_n() -> float:
        """A tilt that stays pushes ahead as well: no more of that than the feet grip."""
        ahead_n, aside_n, down_n = mixer.achieved.force_body_n
        along_n = hypot(ahead_n, aside_n)
        if down_n <= 0.0 or along_n <= _STRAIGHT * down_n:
            return inf
        return airframe.ground.grip_n * down_n / along_n

    ship = Ship(
        airframe=airframe,
        weight=lambda: controller.weight,
        wind_mps=lambda: controller.wind.north_east_mps,
        grips_n=grips_n,
        push_n=lambda: mixer.reach_n(2, 1.0),
        pushes_n=lambda: None if mixer.doubted else mixer.achieved.force_body_n[2],
        lasts_s=battery_s,
        astray=lambda: not effect.only_dead,
        seen=lambda: pilot.seen,
        sways=lambda: mixer.sways,
        steers=mixer.limit_n(1) < _WEAK * mixer.limit_n(0),
    )
    pilot = Pilot(ship=ship)
    supervisor = Supervisor(
        pilot=pilot,
        failsafe=Failsafe(airframe=airframe, fence=lambda: ship.area.fence),
        bench=bench,
        on_landed=estimator.declare_landed,
        killed_s=left.t_s if left is not None and left.killed else None,
    )
    if left is not None and recovery is not None:
        why = "killed" if left.killed else "the flight process died"
        supervisor.adrift = adrift(why, heaviness_kg=left.heaviness_kg)
    commander = Commander(
        airframe=airframe,
        pilot=pilot,
        supervisor=supervisor,
        sensors=sensors.status,
        boot_id=boot_id,
        max_wind_mps=max_wind_mps(
            airframe,
            forward_n=mixer.reach_n(0, 1.0),
            side_n=min(mixer.reach_n(1, 1.0), mixer.reach_n(1, -1.0)),
            yaw_nm=min(mixer.reach_n(5, 1.0), mixer.reach_n(5, -1.0)),
        ),
        pad_deg=estimator.pad_deg,
        take_over=take_over,
    )
    timing = Timing(rate_hz=rate_hz)
    return FlightLoop(
        sensors=sensors,
        outputs=outputs,
        inbox=inbox,
        estimator=estimator,
        pilot=pilot,
        commander=commander,
        supervisor=supervisor,
        actuation=Actuation(
            controller=controller, mixer=mixer, effect=effect, supervisor=supervisor, pilot=pilot
        ),
        battery=battery,
        transmitter=Transmitter(
            airframe=airframe, commander=commander, pilot=pilot, supervisor=supervisor
        ),
        timing=timing,
        snapshots=SnapshotBuilder(
            vehicle=vehicle,
            boot_id=boot_id,
            simulated=simulated,
            servos=airframe.servo_names,
            pilot=pilot,
            commander=commander,
            supervisor=supervisor,
            controller=controller,
            battery=battery,
            timing=timing,
        ),
        record=RecordWriter(
            recorder,
            supervisor=supervisor,
            controller=controller,
            estimator=estimator,
            timing=timing,
        ),
        recovery=recovery,
    )
