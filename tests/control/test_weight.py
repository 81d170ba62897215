"""Weight as a probability."""

import pytest

from blimp.control.weight import LET_GO, a_weight, level_sigma_kg


def test_a_weight_says_how_probable_it_is_that_it_lifts() -> None:
    even = a_weight(0.0, sigma_kg=0.002)
    assert even.p_light() == pytest.approx(0.5)
    heavy = a_weight(0.002, sigma_kg=0.002)
    assert heavy.p_light() == pytest.approx(0.1587, abs=1e-4)  # one sigma
    assert heavy.p_light(0.002) == pytest.approx(0.0228, abs=1e-4)  # two


def test_a_weight_that_is_exact_is_certain() -> None:
    exact = a_weight(0.001, sigma_kg=0.0)
    assert (exact.p_light(), exact.p_light(-0.002)) == (0.0, 1.0)


@pytest.mark.parametrize(("sigmas", "may"), [(3.0, False), (3.2, True)])
def test_a_ship_is_let_go_only_where_it_is_light_once_in_a_thousand(
    sigmas: float, may: bool
) -> None:
    assert LET_GO == 1e-3
    assert a_weight(sigmas, sigma_kg=1.0).may_let_go is may


def test_level_flight_is_never_surer_than_the_lift_is_level_and_its_thrust_is_known() -> None:
    """A tenth of a gram heavy, of 300 g: that is not beyond doubt, however strong its thrust."""
    assert level_sigma_kg(0.0001, displaced_kg=0.3) == pytest.approx(0.0001, rel=0.05)
    assert not a_weight(0.0001, sigma_kg=level_sigma_kg(0.0001, displaced_kg=0.3)).may_let_go
    assert level_sigma_kg(0.01, displaced_kg=0.3) == pytest.approx(0.002, rel=0.05)
    assert a_weight(0.01, sigma_kg=level_sigma_kg(0.01, displaced_kg=0.3)).may_let_go
