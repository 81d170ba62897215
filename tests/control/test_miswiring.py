"""The sentences that name a miswiring and its cure."""

import pytest

from blimp import airframe
from blimp.control.miswiring import Miswiring, Wired
from blimp.control.supervisor import _MESSAGE_LETTERS


@pytest.mark.parametrize("name", airframe.names())
@pytest.mark.parametrize("way", Wired)
def test_each_way_has_a_cure_that_fits_a_message(way: Wired, name: str) -> None:
    ship = airframe.load(name)
    names = {Wired.SWAPPED: ship.thruster_names[:2], Wired.MOUNTED: ("imu",)}.get(
        way, ship.thruster_names[:1]
    )
    cure = Miswiring(way=way, names=names, mounting=("-x", "-y", "z")).cure(ship)
    assert all(name in cure for name in names)
    assert len(cure) <= _MESSAGE_LETTERS


def test_swapped_outputs_name_the_plugs_and_the_rows_of_the_file() -> None:
    cure = Miswiring(way=Wired.SWAPPED, names=("left", "tail")).cure(airframe.load("twin"))
    assert cure == (
        "left and tail seem swapped: exchange their plugs, or their names in the file, in outputs "
        "of motors_main and motors_tail"
    )
