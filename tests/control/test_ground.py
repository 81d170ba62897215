from blimp.control.ground import GroundDetector


def after(detector: GroundDetector, height_m: float, climb_mps: float, seconds: float) -> bool:
    """Whether it is down after so long at that height and climb, from 100 s on."""
    for step in range(round(seconds / 0.01) + 1):
        detector.update(height_m, climb_mps, 100.0 + 0.01 * step)
    return detector.down


def test_it_is_up_after_a_tenth_of_a_second_clearly_above_its_feet() -> None:
    assert after(GroundDetector(), 0.3, 0.5, 9.0)
    assert after(GroundDetector(), 0.4, 0.5, 0.08)
    assert not after(GroundDetector(), 0.4, 0.5, 0.12)


def test_a_height_that_lies_alone_lifts_no_ship_off_its_pad() -> None:
    detector = GroundDetector()
    for step in range(500):
        detector.update(0.7, 0.2, 0.01 * step, touches=True)
    assert detector.down
    assert not after(detector, 0.7, 0.2, 0.12)


def test_it_is_down_after_half_a_second_low_and_slow() -> None:
    for height_m, climb_mps, seconds, down in (
        (0.1, 0.1, 0.52, True),
        (0.1, 0.1, 0.48, False),
        (0.2, 0.0, 9.0, False),
        (0.1, -0.2, 9.0, False),
        (0.1, 0.2, 9.0, False),
    ):
        detector = GroundDetector()
        detector.down = False
        assert after(detector, height_m, climb_mps, seconds) is down
