import pytest

from blimp.hardware.calibration import Calibration, Correction


def test_a_field_loses_its_hard_iron_and_then_its_soft_iron_and_is_levelled() -> None:
    calibration = Calibration(
        magnetic_bias_t=(1e-6, 2e-6, -3e-6),
        magnetic_matrix=((1.0, 0.2, 0.0), (0.1, 0.9, 0.0), (0.0, -0.1, 1.1)),
        level_rad=(0.1, -0.2),
    )
    correction = Correction(calibration, who="imu")
    level = Correction(Calibration(level_rad=(0.1, -0.2)), who="imu")
    field_t = correction.field((11e-6, 22e-6, 27e-6))
    assert level.turned_back(field_t) == pytest.approx((14e-6, 19e-6, 31e-6))
    assert correction.field_back(field_t) == pytest.approx((11e-6, 22e-6, 27e-6))
