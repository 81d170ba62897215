from pathlib import Path

import pytest

from blimp.errors import BusError
from blimp.hardware import sysfs_pwm
from blimp.hardware.sysfs_pwm import SysfsPulses


def test_pulses_are_the_kernels_nanoseconds_and_end_with_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write is one to the kernel; here they stand in a file one after the other."""
    monkeypatch.setattr(sysfs_pwm, "_ROOT", str(tmp_path))
    chip, channel = tmp_path / "pwmchip0", tmp_path / "pwmchip0/pwm1"
    channel.mkdir(parents=True)
    for path in ("export", "unexport", "pwm1/duty_cycle", "pwm1/period", "pwm1/enable"):
        (chip / path).touch()
    closed: list[bool] = []
    pulses = SysfsPulses(
        bus="pwm-0", channel=1, frequency_hz=50.0, closed=lambda: closed.append(True)
    )
    assert (chip / "export").read_text() == "1"
    assert (channel / "duty_cycle").read_text() == "0", "what a killed process has left stops"
    assert (channel / "period").read_text() == "20000000"
    assert (channel / "enable").read_text() == "1"
    pulses.pulse(0.0015)
    for width_s in (-0.001, 0.0201):
        with pytest.raises(ValueError, match=r"is outside 0 to 0\.02 s"):
            pulses.pulse(width_s)
    assert (channel / "duty_cycle").read_text() == "01500000"
    pulses.close()
    pulses.close()
    assert (channel / "duty_cycle").read_text() == "015000000"
    assert (channel / "enable").read_text() == "0"
    assert (chip / "unexport").read_text() == "1"
    assert closed == [True]
    with pytest.raises(BusError, match="pwm-0 channel 1 is closed"):
        pulses.pulse(0.0015)
