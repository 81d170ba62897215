from collections.abc import Callable

from blimp.control.votes import TICK_S, Source, Votes

SOURCES = {
    "ranger": Source(tolerance=0.15, group="down"),
    "sonar": Source(tolerance=0.15, group="down"),
    "baro": Source(tolerance=0.25),
    "tag": Source(tolerance=0.35),
}


def fly(
    votes: Votes[float],
    seconds: float,
    climb_mps: float,
    says: Callable[[str, float], float | None],
    *,
    model: float | None = 1.0,
) -> list[str]:
    """Climb steadily; says: what a source makes of a height. model: what it predicts of the climb.
    Return who was outvoted, in turn."""
    out = []
    for k in range(round(seconds / TICK_S)):
        height_m = climb_mps * TICK_S * k
        for name in SOURCES:
            value = says(name, height_m)
            if value is not None:
                votes.note(name, value)
        found = votes.tick(None if model is None else 3.0 * climb_mps * model)
        if found:
            out.append(found)
    return out


def a_vote() -> Votes[float]:
    return Votes(SOURCES, zero=0.0, model_tolerance=0.35)


def test_sources_of_different_offsets_that_move_together_agree() -> None:
    votes = a_vote()
    assert fly(votes, 10.0, 0.3, lambda name, h: h + len(name)) == []
    assert votes.agreed
    assert votes.doubt == ""


def test_two_stuck_rangers_have_one_vote_and_lose() -> None:
    votes = a_vote()
    out = fly(votes, 10.0, 0.3, lambda name, h: 0.3 if name in ("ranger", "sonar") else h)
    assert sorted(out) == ["ranger", "sonar"]


def test_without_a_tag_the_accelerometer_decides_between_two() -> None:
    def says(name: str, height_m: float) -> float | None:
        return {"baro": height_m, "ranger": 0.3}.get(name)

    assert fly(a_vote(), 10.0, 0.3, says) == ["ranger"]
    undecided = a_vote()
    assert fly(undecided, 10.0, 0.3, says, model=None) == []
    assert "no two agree" in undecided.doubt


def test_a_doubt_ends_when_the_sources_agree_again() -> None:
    votes = a_vote()
    fly(votes, 10.0, 0.3, lambda n, h: {"baro": h, "ranger": 0.3}.get(n), model=None)
    assert votes.doubt
    fly(votes, 10.0, 0.0, lambda n, h: {"baro": h, "ranger": h}.get(n), model=None)
    assert votes.doubt == ""


def test_the_accelerometer_alone_beats_no_sensor() -> None:
    votes = a_vote()
    assert fly(votes, 10.0, 0.3, lambda n, h: 5.0 if n == "baro" else None) == []
    assert votes.outvoted == set()
    assert not votes.agreed


def test_the_accelerometer_beats_no_two_sensors() -> None:
    stuck = fly(a_vote(), 10.0, 0.3, lambda n, h: 0.3 if n in ("ranger", "sonar") else h, model=0.0)
    assert sorted(stuck) == ["ranger", "sonar"]


def test_two_of_one_group_have_no_more_weight_than_one() -> None:
    def says(name: str, height_m: float) -> float | None:
        return {"baro": height_m, "ranger": 0.3, "sonar": 0.3}.get(name)

    undecided = a_vote()
    assert fly(undecided, 10.0, 0.3, says, model=None) == []
    assert "no two agree" in undecided.doubt


def test_one_of_a_group_that_agrees_speaks_for_it() -> None:
    def says(name: str, height_m: float) -> float | None:
        return {"baro": height_m, "ranger": height_m, "sonar": 0.3}.get(name)

    assert fly(a_vote(), 10.0, 0.3, says, model=None) == ["sonar"]


def test_who_was_outvoted_comes_back_by_moving_with_the_others_not_by_standing_still() -> None:
    votes = a_vote()
    fly(votes, 10.0, 0.3, lambda name, h: 0.3 if name == "ranger" else h)
    assert votes.outvoted == {"ranger"}
    fly(votes, 10.0, 0.02, lambda name, h: 0.3 + 0.5 * h if name == "ranger" else h)
    assert votes.outvoted == {"ranger"}  # hardly anything moves: a stuck one agrees, too
    fly(votes, 10.0, 0.3, lambda n, h: 5.0 + 3.0 * h if n == "ranger" else None, model=0.0)
    assert votes.outvoted == {"ranger"}  # nobody says the same
    fly(votes, 10.0, 0.3, lambda name, h: h)
    assert votes.outvoted == set()
