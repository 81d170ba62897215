"""What the ship weighs: a probability with its evidence.

No decision asks "is it heavy?". It compares a probability with a limit that comes from costs: a
light ship that is let go is lost, a heavy one that is pressed down costs an hour of battery.
"""

from math import erfc, hypot, sqrt

import msgspec

# A ship that is lost, and whom it may hit, costs a thousand times a walk to one that is pressed.
LET_GO = 1e-3
EVEN = 0.5  # where being wrong costs the same both ways, as of a message that asks for help
_LEVEL = 0.001 / 3.0  # of the displaced mass: level flight is never off by three times that
_THRUST = 0.2  # of a propeller's thrust, by which its file may be wrong


class Weight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Weight less lift, over g: a normal distribution. Negative: light, it rises by itself.

    weighed: level flight has shown it since the arm. level_kg: as level flight or the airframe's
    file has it, whatever drives the ship at the moment. felt_kg: by the last seconds, climbing or
    not. least_kg: what it weighs at the least, where a height that is lost leaves only memory.
    """

    mean_kg: float
    sigma_kg: float
    weighed: bool = False
    level_kg: float
    felt_kg: float
    least_kg: float
    evidence: str = ""  # "weighed in level flight", "felt in the air", "not weighed yet"

    def p_light(self, margin_kg: float = 0.0) -> float:
        """Return the probability that it lifts more than `margin_kg`."""
        return _below(-margin_kg, self.mean_kg, self.sigma_kg)

    @property
    def may_let_go(self) -> bool:
        """Whether its motors may stop for good: the expected cost of that is the lower one."""
        return self.p_light() < LET_GO

    @property
    def is_light(self) -> bool:
        """Whether level flight has shown that it more probably lifts."""
        return self.weighed and self.p_light() > EVEN


def a_weight(
    mean_kg: float, *, sigma_kg: float, weighed: bool = False, evidence: str = ""
) -> Weight:
    """Return a weight that every road to it agrees on."""
    return Weight(
        mean_kg=mean_kg,
        sigma_kg=sigma_kg,
        weighed=weighed,
        level_kg=mean_kg,
        felt_kg=mean_kg,
        least_kg=mean_kg,
        evidence=evidence,
    )


def level_sigma_kg(mean_kg: float, *, displaced_kg: float) -> float:
    """Return the standard deviation of what level flight has shown.

    A thrust that is weaker than its file says scales it, and keeps its sign.
    """
    return hypot(_LEVEL * displaced_kg, _THRUST * mean_kg)


# As wide as any ship weighs.
UNKNOWN_WEIGHT = a_weight(0.0, sigma_kg=1.0, evidence="not known")


def _below(limit: float, mean: float, sigma: float) -> float:
    """Return the share of a normal distribution that lies below `limit`."""
    if sigma <= 0.0:
        return 1.0 if mean < limit else 0.0
    return 0.5 * erfc((mean - limit) / (sigma * sqrt(2.0)))
