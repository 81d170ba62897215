"""The simulated lens against numbers worked out by hand, and against itself the other way."""

import numpy as np
import pytest

from blimp.sim.camera.optics import Optics

BENT = (-0.3, 0.1, 0.001, -0.002, 0.02)


def lens() -> Optics:
    return Optics(width=640, height=480, fx=500.0, fy=400.0, cx=320.0, cy=240.0, distortion=BENT)


def test_a_point_appears_where_the_formula_of_opencv_puts_it() -> None:
    """By hand for (0.5, -0.25, 1): r2 = 0.3125, radial = 1 - 0.09375 + 0.009765625 + 0.00061035."""
    r2 = 0.3125
    radial = 0.916625976562500
    x = 0.5 * radial + 2 * 0.001 * 0.5 * -0.25 - 0.002 * (r2 + 2 * 0.25)
    y = -0.25 * radial + 0.001 * (r2 + 2 * 0.0625) - 2 * 0.002 * 0.5 * -0.25
    found = lens().pixels((0.5, -0.25, 1.0))
    assert found == pytest.approx((500.0 * x + 320.0, 400.0 * y + 240.0), abs=1e-9)
    assert lens().pixels((0.0, 0.0, 3.0)) == pytest.approx((320.0, 240.0))


def test_the_table_of_rays_undoes_the_lens() -> None:
    optics = lens()
    x, y = optics.rays
    rays = np.stack((x, y, np.ones_like(x)), axis=-1)[:480, :640]
    back = optics.pixels(rays)
    rows, columns = np.mgrid[0:480, 0:640]
    assert np.abs(back[..., 0] - columns).max() < 1e-3
    assert np.abs(back[..., 1] - rows).max() < 1e-3


def test_a_field_of_view_is_from_edge_to_edge() -> None:
    optics = Optics.of_view(640, 480, horizontal_fov_deg=90.0)
    assert optics.fx == pytest.approx(320.0)
    assert optics.rays[0][0, 0] == pytest.approx(-319.5 / 320.0)


def test_what_is_beside_the_view_does_not_fold_back_into_it() -> None:
    """A strong barrel would throw a ray from 80 degrees off the axis into the picture."""
    places = lens().pixels([(6.0, 0.0, 1.0), (0.1, 0.0, -1.0), (-3.0, 3.0, 0.5)])
    assert not ((places[:, 0] > 0) & (places[:, 0] < 639)).any()
