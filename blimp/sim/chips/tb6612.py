"""Toshiba TB6612FNG dual H-bridge with two brushed motors. Source: its data sheet of 2014."""

from typing import ClassVar

from blimp.sim.chips.bridge import Bridge


class Tb6612(Bridge):
    """Row: pins {pwma, ain1, ain2, pwmb, bin1, bin2, stby}, outputs {"a": motor, "b": motor}."""

    KILL = "stby"
    CHANNEL_PINS: ClassVar = {"a": ("pwma", "ain1", "ain2"), "b": ("pwmb", "bin1", "bin2")}

    def _bridge(self, *duties: float) -> float:
        # "H-SW control function": IN1 alone drives out of O1 while PWM is high, IN2 alone out of
        # O2; otherwise it brakes, or with both low stops. The inputs are levels, not pulses.
        pwm, in1, in2 = duties
        return pwm * ((in1 >= 0.5) - (in2 >= 0.5))
