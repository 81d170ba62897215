"""In which ways outputs and IMU may be wired, and what a push would really do in each."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations

import msgspec

from blimp.airframe import Airframe
from blimp.types import Vec3
from blimp.vector import cross, dot
from blimp.wires.wrong import Wrong

PRIOR = 0.2  # of a ship that has not flown: something is wired otherwise
_REVERSED, _WEAK, _PROPELLER = -1.0, 0.5, -0.6
_MANY = 6  # outputs: with more, only two are thought of that are reversed at once

Said = tuple[tuple[Wrong, tuple[str, ...]], ...]
Mount = tuple[Vec3, Vec3, Vec3]  # what is read forward, right and down, along the true axes


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A thruster that is pushed, its servo at an angle. force_n: to and fro."""

    thruster: int
    force_n: float
    tilt_rad: float = 0.0
    both_ways: bool = True


class RealPush(msgspec.Struct, frozen=True, kw_only=True):
    """What a push really does: which thruster gives how much of it, tilted so."""

    thruster: int
    gain: float = 1.0
    tilt_rad: float = 0.0


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """wrong: what to say, empty if all is right. sources: by trial. mounting: of `MOUNTS`."""

    wrong: Said
    sources: tuple[RealPush, ...]
    prior: float
    mounting: int = 0


Changed = tuple[Said, tuple[RealPush, ...], int]  # as in `Hypothesis`, the mounting last
UNKNOWN: Said = ((Wrong.DEAD, ()),)  # something else


def hypotheses_of(airframe: Airframe, trials: Sequence[Trial], *, imu: str) -> list[Hypothesis]:
    """Return all that is thought of; the first is that all is right."""
    names = airframe.thruster_names
    right = tuple(RealPush(thruster=t.thruster, tilt_rad=t.tilt_rad) for t in trials)

    def of(
        changed: Mapping[int, tuple[int, float]],
        tilted: str = "",
        share: float = 1.0,
        off_rad: float = 0.0,
    ) -> tuple[RealPush, ...]:
        """Return what the pushes do then.

        changed: by thruster, whose push it is and how much of it. tilted: a servo that turns by
        this share of what is asked, and stands off by so much.
        """
        found = []
        for source in right:
            other, gain = changed.get(source.thruster, (source.thruster, 1.0))
            turned = airframe.thruster[source.thruster].tilted_by == tilted != ""
            angle = off_rad + share * source.tilt_rad if turned else source.tilt_rad
            if airframe.thruster[other].tilted_by != airframe.thruster[source.thruster].tilted_by:
                angle = 0.0
            found.append(RealPush(thruster=other, gain=gain, tilt_rad=angle))
        return tuple(found)

    def motors(wrong: Wrong, group: Sequence[int], gain: float) -> Changed:
        said = tuple((wrong, (names[i],)) for i in group)
        return said, of({i: (i, gain) for i in group}), 0

    def swapped(i: int, j: int, one: float, two: float) -> Changed:
        """one, two: whether what is pushed in place of i, and of j, is reversed besides."""
        ways = ((j, one), (i, two))
        said = ((Wrong.REVERSED, (names[k],)) for k, way in ways if way < 0.0)
        return ((Wrong.SWAPPED, (names[i], names[j])), *said), of({i: (j, one), j: (i, two)}), 0

    numbers = range(len(names))
    most = len(names) if len(names) <= _MANY else 2
    groups = [group for n in range(1, most + 1) for group in combinations(numbers, n)]
    pairs = list(combinations(numbers, 2))
    signs = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
    tilts = [s for s in airframe.servo if any(t.tilted_by == s.name for t in airframe.thruster)]
    outputs = [[names.index(n) for n in d.outputs.values() if n in names] for d in airframe.device]
    drivers = [group for group in outputs if 1 < len(group) < len(names)]
    kinds: list[list[Changed]] = [
        [motors(Wrong.REVERSED, group, _REVERSED) for group in groups],
        [motors(Wrong.PROPELLER, group, _PROPELLER) for group in groups if len(group) <= 2],
        [swapped(i, j, one, two) for i, j in pairs for one, two in signs],
        [motors(Wrong.WEAK, (i,), _WEAK) for i in numbers],
        [motors(Wrong.DEAD, group, 0.0) for group in (*((i,) for i in numbers), *drivers)],
        [
            (((wrong, (servo.name,)),), of({}, servo.name, share, off_rad), 0)
            for servo in tilts
            for wrong, share, off_rad in (
                # The ends of the pulses are exchanged: it turns about the middle of its travel.
                (Wrong.OTHER_WAY, -1.0, servo.min_rad + servo.max_rad - 2.0 * servo.neutral_rad),
                (Wrong.STUCK, 0.0, 0.0),
                (Wrong.HALF_WAY, 0.5, 0.0),
            )
        ],
        [(((Wrong.MOUNTED, (imu,)),), right, k) for k in range(1, len(MOUNTS))],
        # No push shows: it is held too firmly. Or it answers as nothing that is thought of.
        [(UNKNOWN, of({i: (i, 0.0) for i in numbers}), 0), (UNKNOWN, (), 0)],
    ]
    kinds = [kind for kind in kinds if kind]
    found = [Hypothesis(wrong=(), sources=right, prior=1.0 - PRIOR)]
    for kind in kinds:
        # A second thing that is wrong beside the first is as rare again.
        shares = [PRIOR ** (len(wrong) - 1) for wrong, _, _ in kind]
        found += [
            Hypothesis(
                wrong=wrong, sources=sources, mounting=mounting,
                prior=PRIOR / len(kinds) * share / sum(shares),
            )
            for (wrong, sources, mounting), share in zip(kind, shares, strict=True)
        ]  # fmt: skip
    return found


def alike(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether the cure of one is that of the other: a motor alone on its axis shows no share."""
    backward = {Wrong.REVERSED, Wrong.PROPELLER}
    if one.wrong == other.wrong:
        return one.mounting == other.mounting
    names = [{n for _, names in h.wrong for n in names} for h in (one, other)]
    return names[0] == names[1] and all(w in backward for h in (one, other) for w, _ in h.wrong)


def _mounts() -> list[Mount]:
    """Return the 24 ways a board sits on its ship, by right angles; the first as it should."""
    ends: list[Vec3] = [
        (sign * (k == 0), sign * (k == 1), sign * (k == 2))
        for sign in (1.0, -1.0)
        for k in range(3)
    ]
    return [
        (ahead, right, cross(ahead, right))
        for ahead, right in permutations(ends, 2)
        if not dot(ahead, right)
    ]


MOUNTS = _mounts()
