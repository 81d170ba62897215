"""How the ship touches the world, and what it weighs: probabilities with their evidence.

No decision asks "is it heavy?". It compares a probability with a limit that comes from costs: a
light ship that is let go is lost, a heavy one that is pressed down costs an hour of battery.
"""

from enum import StrEnum
from math import erfc, sqrt

import msgspec

# A ship that is lost, and whom it may hit, costs a thousand times a walk to one that is pressed.
LET_GO = 1e-3
EVEN = 0.5  # where being wrong costs the same both ways, as of a message that asks for help


class Contact(StrEnum):
    """What carries the ship."""

    AIRBORNE = "airborne"  # air and thrust alone
    TOUCHING = "touching"  # the ground carries some of it, and nothing says that it stays
    RESTING = "resting"  # it lies on the ground by its weight, or by its feet, without thrust
    PRESSED = "pressed"  # thrust holds it on the ground
    HELD = "held"  # somebody holds it
    UNKNOWN = "unknown"  # what would tell is missing, or contradicts itself


class Touch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One contact, how probable it is, and what says so."""

    contact: Contact = Contact.UNKNOWN
    probability: float = 0.0
    evidence: str = ""


class Weight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Weight less lift, over g: a normal distribution. Negative: light, it rises by itself."""

    mean_kg: float
    sigma_kg: float
    evidence: str = ""  # "weighed in level flight", "felt in the air", "by the airframe's file"

    def p_light(self, margin_kg: float = 0.0) -> float:
        """Return the probability that it lifts more than `margin_kg`."""
        return _below(-margin_kg, self.mean_kg, self.sigma_kg)

    def p_heavy(self, margin_kg: float = 0.0) -> float:
        """Return the probability that it weighs more than `margin_kg`."""
        return _below(-margin_kg, -self.mean_kg, self.sigma_kg)

    @property
    def may_let_go(self) -> bool:
        """Whether its motors may stop for good: the expected cost of that is the lower one."""
        return self.p_light() < LET_GO


# As wide as any ship weighs.
UNKNOWN_WEIGHT = Weight(mean_kg=0.0, sigma_kg=1.0, evidence="not known")


def _below(limit: float, mean: float, sigma: float) -> float:
    """Return the share of a normal distribution that lies below `limit`."""
    if sigma <= 0.0:
        return 1.0 if mean < limit else 0.0
    return 0.5 * erfc((mean - limit) / (sigma * sqrt(2.0)))
