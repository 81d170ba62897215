"""The published ships fly as far as their sensors allow, and their page names each."""

import re

import pytest

from benchmarks.builds import BUILDS, PAGE, PICTURES, fly
from blimp import airframe as airframes
from blimp.service.airframes.check import check

GLIDERS = ("rgblimp",)  # wings lift it only while it moves: it is replayed
FLYING = tuple(name for name in BUILDS if name not in GLIDERS)
# One of each kind of layout: a tilting pair without a position, one-way bicopter, X of six.
QUICK = ("blimpduino", "open-blimp")


def test_there_are_twenty_with_their_source() -> None:
    assert len(BUILDS) >= 20
    for name in BUILDS:
        source = airframes.load(name).source
        assert re.search(r"[a-z]/[a-zA-Z0-9]|arXiv|20[012][0-9]", source), source


@pytest.mark.parametrize("name", FLYING)
def test_each_can_fly_and_is_on_the_page(name: str) -> None:
    assert check(airframes.load(name)).ok
    assert f"| `{name}` |" in PAGE.read_text("utf-8")
    assert (PICTURES / f"{name}.svg").exists()


def _flies(name: str, seed: int) -> None:
    flight = fly(name, seed=seed)
    assert flight.landed, flight.end
    assert 1.2 < flight.highest_m < 3.5
    assert flight.farthest_m > 0.5  # also where its propellers push one way alone


@pytest.mark.parametrize("name", QUICK)
def test_it_hops_and_lands(name: str) -> None:
    _flies(name, 2101)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FLYING if name not in QUICK])
def test_every_other_one_hops_and_lands(name: str) -> None:
    _flies(name, 2102)
