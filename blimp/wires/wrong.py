"""What can be wrong with an output: names, and what a person can do about it.

Shared by what looks before flight and by what looks in flight, so that both say the same of the
same fault. One sentence each: what is seen, a colon, the cure.
"""

from collections.abc import Sequence
from enum import StrEnum


class Wrong(StrEnum):
    """What an output does instead of its command; of thrusters, then of servos; of the IMU last."""

    DEAD = "dead"
    WEAK = "weak"  # 30 to 70 % of its thrust
    RUNS = "runs"  # full or backwards, whatever is commanded
    REVERSED = "reversed"
    PROPELLER = "propeller"  # turned round or of the other pitch: reversed, and weaker
    SWAPPED = "swapped"  # two of them
    STUCK = "stuck"
    OTHER_WAY = "other way"
    HALF_WAY = "half way"
    MOUNTED = "mounted"


_SAID: dict[Wrong, tuple[str, str]] = {
    Wrong.DEAD: ("does nothing", "look at its plug, its propeller and its motor"),
    Wrong.WEAK: ("gives about half of its thrust", "look at its propeller, its battery and plug"),
    Wrong.RUNS: ("runs by itself", "look at its driver and its wires"),
    Wrong.REVERSED: (
        "seems reversed",
        "exchange the two wires of its motor, or turn its propeller round",
    ),
    Wrong.PROPELLER: (
        "pushes the wrong way, and weakly",
        "its propeller is the wrong way round, or of the other pitch",
    ),
    Wrong.SWAPPED: ("seem swapped", "exchange their plugs, or their outputs in the airframe"),
    Wrong.STUCK: ("stays at one angle", "look at its plug, its horn and its linkage"),
    Wrong.OTHER_WAY: (
        "turns the other way",
        "exchange its min_pulse_s and max_pulse_s in the airframe",
    ),
    Wrong.HALF_WAY: (
        "turns half as far as commanded",
        "correct its min_pulse_s and max_pulse_s in the airframe, or its linkage",
    ),
    Wrong.MOUNTED: (
        "is mounted otherwise than the airframe says",
        "turn its board, or correct its mounting in the airframe",
    ),
}


def seen(wrong: Wrong) -> str:
    """Return what is seen of it, without a cure."""
    return _SAID[wrong][0]


def sentence(wrong: Wrong, names: Sequence[str]) -> str:
    """Return the message about it: "left and right seem swapped: exchange their plugs, or …"."""
    what, cure = _SAID[wrong]
    return f"{' and '.join(names)} {what}: {cure}"
