from blimp.control.gate import Gate


def test_it_refuses_an_outlier_and_counts_for_how_long() -> None:
    gate = Gate(floor=0.2, sigmas=3.0)
    assert not gate.speaks(0.0)
    assert gate.accepts(-0.2, 1e-6, 1.0)  # within its floor, however sure the filter is
    assert gate.accepts(1.2, 0.16, 1.0)  # within three deviations
    assert not gate.accepts(1.21, 0.16, 2.0)
    assert not gate.accepts(-1.21, 0.16, 4.0)
    assert gate.refused_s(5.0) == 3.0
    assert gate.last_s == 1.0
    assert gate.accepts(0.0, 0.16, 6.0)
    assert not gate.accepts(9.0, 0.16, 7.0)
    assert gate.refused_s(8.0) == 1.0
    gate.forgive()
    assert gate.refused_s(8.0) == 0.0


def test_it_speaks_for_three_tenths_of_a_second_whether_it_accepts_or_not() -> None:
    gate = Gate(floor=0.2, sigmas=3.0)
    assert not gate.accepts(9.0, 0.0, 0.0)
    assert gate.speaks(0.3)
    assert not gate.speaks(0.31)
