"""Ships of every layout that `airframe new` knows hold their place as well as the check says.

And some that it does not know: propellers of one direction, S-shaped, a tail that a servo turns.
"""

from collections.abc import Callable
from math import degrees, hypot

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe, Servo
from blimp.rotation import yaw_of
from blimp.service.airframes.figures import CALM, cannot, compute, holds_m
from blimp.service.airframes.layouts import LAYOUTS
from blimp.service.airframes.new import Plan, describe
from blimp.ship.lockstep import Lockstep

HEIGHT_M = 2.0


def described(layout: str) -> Airframe:
    return airframe.parse(describe(Plan(name=layout, layout=layout)), where=f"{layout}.toml")


def one_way(layout: str) -> Airframe:
    """The same with propellers that push one way, as a plain speed controller drives them."""
    ship = described(layout)
    motors = [msgspec.structs.replace(t, reverse_thrust_n=0.0) for t in ship.thruster]
    return msgspec.structs.replace(ship, thruster=tuple(motors))


def s_shaped() -> Airframe:
    """Four thrusters: two ahead, each beside the other end of the hull, and two that lift."""
    ship = described("quad")
    left, right, front, rear = ship.thruster
    _, y, z = right.position_m
    places = ((0.2, -y, z), (-0.2, y, z), (0.1, y, z), (-0.1, -y, z))
    motors = [
        msgspec.structs.replace(t, position_m=place)
        for t, place in zip((left, right, front, rear), places, strict=True)
    ]
    return msgspec.structs.replace(ship, thruster=tuple(motors))


def turned_tail() -> Airframe:
    """A pair on a servo, and a tail that another servo turns to either side."""
    ship = described("vectored")
    left, right, tail = ship.thruster
    tail = msgspec.structs.replace(
        tail, axis=(1.0, 0.0, 0.0), tilt_axis=(0.0, 0.0, 1.0), tilted_by="turn"
    )
    turn = Servo(name="turn", min_rad=-1.7, max_rad=1.7, slew_radps=4.0)
    devices = [
        msgspec.structs.replace(row, outputs={**row.outputs, "1": "turn"})
        if row.name == "servos"
        else row
        for row in ship.device
    ]
    return msgspec.structs.replace(
        ship, thruster=(left, right, tail), servo=(*ship.servo, turn), device=tuple(devices)
    )


SHIPS: dict[str, Callable[[], Airframe]] = {
    **{name: lambda name=name: described(name) for name in LAYOUTS},  # type: ignore[misc]
    "bicopter, one way": lambda: one_way("bicopter"),
    "bicopter-1, one way": lambda: one_way("bicopter-1"),
    "S-shaped": s_shaped,
    "turned tail": turned_tail,
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("air", ["still", "wind"])
@pytest.mark.parametrize("name", SHIPS)
def test_a_layout_flies_and_holds_as_well_as_it_is_said_to(name: str, air: str) -> None:
    ship = SHIPS[name]()
    figures = compute(ship)
    still_m, windy_m = holds_m(figures)
    wind_mps = CALM * figures.max_wind_mps if air == "wind" else 0.0
    promised_m = windy_m if air == "wind" else still_m
    with Lockstep(airframe=ship, seed=3100 + len(name), wind_mps=wind_mps) as flight:
        flight.step(15.0)  # in wind the gyro's bias takes so long
        flight.complete("arm", within_s=10.0)
        flight.complete("takeoff", within_s=90.0, altitude_m=HEIGHT_M)
        flight.complete(
            "goto", within_s=120.0, north_m=2.0, east_m=2.0, altitude_m=HEIGHT_M, yaw_deg=90.0
        )
        flight.command("hold")
        flight.step(10.0)
        north_m, east_m, _ = flight.truth.position_ned_m
        off_m = low_m = 0.0
        for _ in range(60):
            flight.step(0.5)
            n, e, d = flight.truth.position_ned_m
            off_m = max(off_m, hypot(n - north_m, e - east_m))
            low_m = max(low_m, abs(HEIGHT_M + d))
        print(
            f"{name}: {wind_mps:.2f} m/s: off {off_m:.2f} m of {promised_m}, height {low_m:.2f} m"
        )
        assert off_m <= promised_m
        # The others turn their nose to where they must push; in wind each swings about it.
        if figures.authority.sways and air == "still":
            assert degrees(yaw_of(flight.truth.attitude)) == pytest.approx(90.0, abs=15.0)
        assert low_m <= 0.4
        said = [text for text in flight.messages if "by itself" in text or "nothing" in text]
        assert said == [], "a healthy output was accused"
        landed = flight.complete("land", within_s=120.0).result
        assert landed["touchdown_mps"] < 0.35


def test_what_a_layout_cannot_do_is_said() -> None:
    found = {name: " ".join(cannot(compute(make()))) for name, make in SHIPS.items()}
    without = {name for name, text in found.items() if "sideways" not in text}
    assert without == {"vectored", "turned tail"}
    assert {n for n, text in found.items() if "wanders" in text} == {"bicopter-1, one way"}
    assert {n for n, text in found.items() if "go back" in text} == set()
