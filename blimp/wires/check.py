"""Whether the outputs and the IMU are wired as the airframe says: by short pushes of a held ship.

Each output is pushed to and fro for half a second at a time, in turns, so that a person's sway
averages out. What accelerometer and gyro answer is a number an axis and push: the reading along the
shape that a push leaves, offset and drift taken out. The same numbers follow from the airframe for
each hypothesis, the ship free but for its weight. What holds it takes a part of the answer on each
axis, the same part of all pushes: it is summed over. The noise is that of the pushes among each
other. What is named is more likely than all else together by a stated ratio of costs.

Source: likelihoods with a nuisance parameter summed out and a variance from few values (Student's
t): A. Gelman et al., "Bayesian Data Analysis" (2013), sections 2.8 and 3.2.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import inf, isfinite, log
from random import Random

import msgspec

from blimp.airframe import Airframe, Servo
from blimp.types import ActuatorCommand, SensorStatus
from blimp.wires.answers import (
    AXES,
    BEFORE_S,
    COUNT,
    PUSH_S,
    STEP_S,
    TAKEN,
    Answer,
    Rows,
    answer_of,
    inverse_mass,
    likelihoods,
    log_mean,
    log_sum,
    moved_by,
    plumb_likelihood,
    reduce,
    scatter,
    swings_radps,
    turned,
    unknown_likelihood,
    weights_of,
)
from blimp.wires.hypotheses import (
    MOUNTS,
    UNKNOWN,
    Hypothesis,
    Mount,
    RealPush,
    Said,
    Trial,
    alike,
    hypotheses_of,
)
from blimp.wires.wrong import Wrong, sentence

_ROUNDS = 6  # pushes of each output, half of them backwards: five degrees of freedom a number
# Asked of a push: three times what a loose hold's sway leaves in a second, and no more than turns a
# ship by 10 degrees until the next one.
_PUSH_MPS2, _PUSH_RADPS2 = 0.2, 0.4
_LEAST_SHARE = 0.1  # of full thrust: a third of full throttle, above dead bands
_TILT_RAD = 0.8  # to each side: thrust along and across differ by as much as they can
_SETTLE_S = 0.3  # of a servo, after its way
_FEWEST = 3  # pushes that the IMU felt, of each output
_COSTS = log(100.0)  # asking again takes a person a minute, a wrong name an evening
_HOPELESS = -40.0  # log odds, of gravity alone
_FLAT = ("x", "-y", "-z")  # of a chip on its back, where the file has no mounting
_DIRECTIONS = (("forward", "backward"), ("right", "left"), ("down", "up"))


class WiresFound(msgspec.Struct, frozen=True, kw_only=True):
    """What the check says. sure: it may be believed. said: a sentence each, with the cure."""

    sure: bool
    wrong: Said = ()
    said: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()  # the outputs that a person looks at, if it is not sure
    mounting: tuple[str, ...] = ()  # of the IMU, as the option of that name
    odds: float = 0.0  # log odds of it against all else


class WireCheck:
    """Pushes output after output, looks at the IMU, and then thinks for some seconds.

    Call `update` once a cycle and drive what it returns; it ends with `finding`. It never takes
    longer than a cycle has for it: each cycle weighs one part of what is left to think.
    """

    def __init__(
        self, *, airframe: Airframe, imu: str, felt: Callable[[float], SensorStatus | None]
    ) -> None:
        """felt: the device `imu` as a person sees it: its newest six values, and their age."""
        self._airframe = airframe
        self._imu = imu
        self._status = felt
        self._thrusters = airframe.thruster
        self._inverse = inverse_mass(airframe)
        self._trials = _trials(airframe, self._inverse)
        self._order = _order(self._trials)
        self._weights = weights_of(swings_radps(airframe, self._inverse))
        self._felt: list[list[Answer]] = [[] for _ in self._trials]
        self._sums: list[list[float]] = []
        self._plumb, self._samples = [0.0, 0.0, 0.0], 0
        self._push = 0  # of the order
        self._began_s: float | None = None
        self._last_s = -inf  # of the IMU's samples
        self._thought: Iterator[WiresFound | None] | None = None
        self.finding: WiresFound | None = None

    @property
    def fraction(self) -> float:
        """How far it is, 0 to 1."""
        return 1.0 if self.finding else 0.95 * self._push / len(self._order)

    def update(self, now_s: float) -> ActuatorCommand:
        """Return what to drive."""
        if self._push == len(self._order):
            self._think()
            return self._command(None, 0.0)
        k, sign = self._order[self._push]
        if self._began_s is None:
            self._began_s = now_s + self._way_s()
            self._sums = [[0.0] * 7 for _ in range(COUNT)]
        t_s = now_s - self._began_s
        if t_s >= COUNT * STEP_S:
            self._note(k, sign)
            self._push, self._began_s = self._push + 1, None
            return self._command(k, 0.0)
        if t_s >= 0.0:
            self._take(now_s, self._sums[int(t_s / STEP_S)])
        pushes = BEFORE_S <= t_s < BEFORE_S + PUSH_S
        return self._command(k, sign * self._trials[k].force_n if pushes else 0.0)

    def _take(self, now_s: float, row: list[float]) -> None:
        """Add the IMU's newest sample, once."""
        felt = self._status(now_s)
        if felt is None or not isinstance(felt.value, tuple) or felt.age_s is None:
            return
        values = (*felt.value[:6], 1.0)
        if now_s - felt.age_s > self._last_s and len(values) == 7 and all(map(isfinite, values)):
            self._last_s = now_s - felt.age_s
            row[:] = [total + value for total, value in zip(row, values, strict=True)]

    def _way_s(self) -> float:
        """Return how long the servos need from the last push's angles."""
        now = self._trials[self._order[self._push][0]]
        before = self._trials[self._order[max(0, self._push - 1)][0]]
        slowest = min([servo.slew_radps for servo in self._airframe.servo], default=1.0)
        way_rad = abs(now.tilt_rad - before.tilt_rad)
        return way_rad / slowest + _SETTLE_S if way_rad else 0.0

    def _command(self, trial: int | None, force_n: float) -> ActuatorCommand:
        motors, tilted, tilt_rad = [0.0] * len(self._thrusters), "", 0.0
        if trial is not None:
            one = self._trials[trial]
            thruster = self._thrusters[one.thruster]
            motors[one.thruster] = thruster.throttle(force_n)
            tilted, tilt_rad = thruster.tilted_by, one.tilt_rad
        angles = (
            servo.neutral_rad + (tilt_rad if servo.name == tilted else 0.0)
            for servo in self._airframe.servo
        )
        return ActuatorCommand(motors=tuple(motors), servos=tuple(angles))

    def _note(self, trial: int, sign: float) -> None:
        """Reduce a push to its answer; one in which the IMU was silent is left out."""
        if not all(row[6] for row in self._sums):
            return
        means = [[value / row[6] for value in row[:6]] for row in self._sums]
        self._felt[trial].append(tuple(sign * x for x in reduce(self._weights, means)))
        for axis in range(3):
            self._plumb[axis] += sum(row[axis] for row in means) / len(means)
        self._samples += 1

    def _think(self) -> None:
        if self._thought is None:
            self._thought = self._judge()
        self.finding = self.finding or next(self._thought)

    # --- thinking: each `yield` ends a cycle's part of it -----------------------------------------

    def _judge(self) -> Iterator[WiresFound | None]:
        """Yield None while it goes on, then the finding."""
        if min(len(felt) for felt in self._felt) < _FEWEST:
            yield WiresFound(sure=False, said=("not sure: the IMU was silent; look at its wires",))
            return
        hypotheses = hypotheses_of(self._airframe, self._trials, imu=self._imu)
        answers = yield from self._reckon(hypotheses)
        strongest = [
            max(
                abs(trial.force_n * answers[source][axis])
                for trial, source in zip(self._trials, hypotheses[0].sources, strict=True)
            )
            for axis in AXES
        ]
        mean, noise = scatter(self._felt)
        pushes = [len(felt) for felt in self._felt]
        freedom = sum(pushes) - len(pushes)
        down = [value / self._samples for value in self._plumb]
        tables: dict[tuple[int, int, RealPush], Rows] = {}
        odds: list[float] = []
        for h in hypotheses:
            mount = MOUNTS[h.mounting]
            total = log(h.prior) + plumb_likelihood(mount, down)
            if not h.sources:
                total += sum(
                    unknown_likelihood(one, noise, strongest, pushes=count, freedom=freedom)
                    for one, count in zip(mean, pushes, strict=True)
                )
            elif total > _HOPELESS:
                keys = [(h.mounting, k, source) for k, source in enumerate(h.sources)]
                for key in keys:
                    if key not in tables:
                        _, k, source = key
                        tables[key] = likelihoods(
                            turned(mount, mean[k]),
                            turned(mount, noise, square=True),
                            [self._trials[k].force_n * value for value in answers[source]],
                            strongest,
                            pushes=pushes[k],
                            freedom=freedom,
                        )
                        yield None
                for axis in AXES:  # a hold takes the same share of all pushes
                    each = [tables[key][axis] for key in keys]
                    total += log_mean([sum(row[n] for row in each) for n in range(len(TAKEN))])
            odds.append(total)
        yield None
        yield self._name(hypotheses, odds)

    def _reckon(
        self, hypotheses: Sequence[Hypothesis]
    ) -> Generator[WiresFound | None, None, Mapping[RealPush, Answer]]:
        """Return the answer to a newton of every source."""
        answers: dict[RealPush, Answer] = {}
        sources = dict.fromkeys(source for h in hypotheses for source in h.sources)
        for source in sources:
            whole = msgspec.structs.replace(source, gain=1.0)
            if whole not in answers:
                answers[whole] = answer_of(self._airframe, self._inverse, whole, self._weights)
                yield None
            answers[source] = tuple(source.gain * value for value in answers[whole])
        return answers

    def _name(self, hypotheses: Sequence[Hypothesis], odds: Sequence[float]) -> WiresFound:
        """Return the hypothesis that beats all others together by the ratio of the costs."""
        order = sorted(range(len(odds)), key=odds.__getitem__, reverse=True)
        best = hypotheses[order[0]]
        same = [i for i in order if alike(hypotheses[i], best)]
        rest = [i for i in order if i not in same]
        sure = log_sum([odds[i] for i in same]) - log_sum([odds[i] for i in rest])
        if sure < _COSTS or best.wrong is UNKNOWN:
            return self._unsure(best, hypotheses[rest[0]], odds=sure)
        if odds[same[0]] - odds[same[-1]] < _COSTS:  # the sentence that has both causes
            backward = (hypotheses[i] for i in same)
            best = next((h for h in backward if (Wrong.REVERSED in dict(h.wrong))), best)
        said = [sentence(wrong, names) for wrong, names in best.wrong]
        mounting = self._mounting(MOUNTS[best.mounting]) if best.mounting else ()
        if mounting:
            said[0] += ": mounting = [" + ", ".join(f'"{axis}"' for axis in mounting) + "]"
        return WiresFound(
            sure=True, wrong=best.wrong, said=tuple(said), mounting=mounting, odds=sure
        )

    def _unsure(self, best: Hypothesis, second: Hypothesis, *, odds: float) -> WiresFound:
        names = dict.fromkeys(n for h in (best, second) for _, names in h.wrong for n in names)
        outputs = tuple(name for name in names if name != self._imu)
        about = f" about {', '.join(names)}" if names else ""
        said = f"not sure{about}: hang the ship on a string, out of wind, and try again"
        if outputs:
            said += "; look: " + " ".join(look_at(self._airframe, name) for name in outputs)
        return WiresFound(sure=False, said=(said,), doubtful=outputs, odds=odds)

    def _mounting(self, mount: Mount) -> tuple[str, ...]:
        """Return the chip axes that point forward, right and down, if the file's are so wrong."""
        row = next((d for d in self._airframe.device if d.name == self._imu), None)
        file: Sequence[str] = row.options.get("mounting", _FLAT) if row else _FLAT
        found = []
        for axis in range(3):
            read = max(range(3), key=lambda i: abs(mount[i][axis]))
            minus = file[read].startswith("-") is not (mount[read][axis] < 0.0)
            found.append("-" * minus + file[read].lstrip("+-"))
        return tuple(found)


def look_at(airframe: Airframe, output: str) -> str:
    """Return the question about an output to a person who sees its push."""
    for thruster in airframe.thruster:
        if thruster.name == output:
            largest = max(range(3), key=lambda i: abs(thruster.axis[i]))
            back = _DIRECTIONS[largest][thruster.axis[largest] > 0.0]
            return f"does the propeller {output} blow {back}?"
    return f"does {output} turn the right way?"


def _trials(airframe: Airframe, inverse: Rows) -> list[Trial]:
    """Return each thruster at its servo's neutral angle, and one of each servo to both sides."""
    found: list[Trial] = []
    servos = {servo.name: servo for servo in airframe.servo}
    tilted: set[str] = set()
    for k, thruster in enumerate(airframe.thruster):
        least_n = min(thruster.max_thrust_n, thruster.reverse_thrust_n or inf)
        moved = moved_by(airframe, inverse, thruster)  # by a newton
        wished_n = min(
            _PUSH_MPS2 / max(1e-9, *map(abs, moved[:3])),
            _PUSH_RADPS2 / max(1e-9, *map(abs, moved[3:])),
        )
        force_n = min(least_n, max(_LEAST_SHARE * least_n, wished_n))
        angles = [0.0]
        if thruster.tilted_by and thruster.tilted_by not in tilted:
            tilted.add(thruster.tilted_by)
            angles += _ways(servos[thruster.tilted_by])
        found += [
            Trial(
                thruster=k, force_n=force_n, tilt_rad=angle,
                both_ways=thruster.reverse_thrust_n > 0.0,
            )
            for angle in angles
        ]  # fmt: skip
    return found


def _order(trials: Sequence[Trial]) -> list[tuple[int, float]]:
    """Return trials and signs as they are pushed: no push always follows the same other one,
    whose swing it would inherit."""
    random = Random(len(trials))
    found: list[tuple[int, float]] = []
    for tilt in dict.fromkeys(trial.tilt_rad for trial in trials):
        some = [
            (k, -1.0 if turn % 2 and trial.both_ways else 1.0)
            for k, trial in enumerate(trials)
            for turn in range(_ROUNDS)
            if trial.tilt_rad == tilt
        ]
        random.shuffle(some)
        found += some
    return found


def _ways(servo: Servo) -> list[float]:
    """Return the angles from neutral to which a tilt servo is sent."""
    ways = (
        min(_TILT_RAD, servo.max_rad - servo.neutral_rad),
        max(-_TILT_RAD, servo.min_rad - servo.neutral_rad),
    )
    return [way for way in ways if abs(way) > 0.25 * _TILT_RAD]
