"""Weight as a probability."""

import pytest

from blimp.control.weight import LET_GO, a_weight


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
