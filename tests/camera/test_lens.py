from pathlib import Path

import msgspec
import numpy as np
import pytest

from blimp.camera import lens as lenses
from blimp.errors import ConfigError

VIEW = lenses.of_view(640, 480, 66.0)
BARREL = msgspec.structs.replace(VIEW, k1=-0.3, k2=0.1, p1=0.001, p2=-0.002, k3=-0.02)


def test_a_point_straight_ahead_is_in_the_middle() -> None:
    (pixel,) = VIEW.project(np.array([[0.0, 0.0, 2.0]]))
    assert pixel == pytest.approx((319.5, 239.5))
    (edge,) = VIEW.project(np.array([[2.0 * np.tan(np.radians(33.0)), 0.0, 2.0]]))
    assert edge[0] == pytest.approx(639.5)
    assert VIEW.horizontal_fov_deg == pytest.approx(66.0)


def test_distortion_as_opencv_computes_it() -> None:
    (pixel,) = BARREL.project(np.array([[0.4, -0.3, 1.0]]))
    x, y, r2 = 0.4, -0.3, 0.25
    radial = 1.0 - 0.3 * r2 + 0.1 * r2**2 - 0.02 * r2**3
    u = x * radial + 2.0 * 0.001 * x * y - 0.002 * (r2 + 2.0 * x * x)
    v = y * radial + 0.001 * (r2 + 2.0 * y * y) - 2.0 * 0.002 * x * y
    assert pixel == pytest.approx((VIEW.fx * u + VIEW.cx, VIEW.fy * v + VIEW.cy))


def test_distortion_is_undone_over_the_whole_picture() -> None:
    pixels = np.random.default_rng(5).uniform((0, 0), (639, 479), (500, 2))
    assert BARREL.distort(BARREL.undistort(pixels)) == pytest.approx(pixels, abs=1e-3)


def test_what_the_lens_cannot_have_seen_is_nan() -> None:
    assert np.isnan(VIEW.project(np.array([[0.0, 0.0, -1.0]]))).all()
    assert np.isnan(BARREL.undistort(np.array([[1e5, 1e5]]))).all()


def test_a_smaller_picture_of_the_same_view() -> None:
    half = lenses.scaled(BARREL, 320, 240)
    point = np.array([[0.3, 0.2, 1.0]])
    assert half.project(point) == pytest.approx((BARREL.project(point) + 0.5) / 2.0 - 0.5)
    with pytest.raises(ConfigError, match="another shape"):
        lenses.scaled(VIEW, 640, 360)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "lens.toml"
    file.write_text(lenses.as_toml(BARREL))
    back = lenses.load(file)
    assert back.fx == pytest.approx(BARREL.fx)
    assert msgspec.structs.replace(back, fx=BARREL.fx, fy=BARREL.fy) == BARREL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "width"),
        (lenses.as_toml(VIEW) + "k4 = 1.0", "k4"),
        (lenses.as_toml(VIEW).replace("k1 = 0", "k1 = nan"), "10.0.*k1"),
        (lenses.as_toml(VIEW).replace("width = 640", "width = 0"), "16.*width"),
        ("#" * 10_001, "10000 bytes"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "lens.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"lens.toml: .*{said}"):
        lenses.load(file)
