from blimp.control.memory import STOPS, OutcomeMemory
from blimp.types import Outcome, OutcomeState


def outcome(id: str, state: OutcomeState = OutcomeState.DONE) -> Outcome:
    return Outcome(id=id, state=state)


def test_it_keeps_the_newest_outcome_and_the_highest_fence() -> None:
    memory = OutcomeMemory()
    memory.put(outcome("a", OutcomeState.IN_PROGRESS), name="goto", fence=3)
    memory.put(outcome("a"), name="goto", fence=1)
    seen = memory.get("a")
    assert seen is not None
    assert seen.outcome.state is OutcomeState.DONE
    assert seen.fence == 3


def test_it_is_bounded_and_forgets_what_was_touched_longest_ago() -> None:
    memory = OutcomeMemory(capacity=3)
    for id in "abc":
        memory.put(outcome(id), name="goto", fence=1)
    assert memory.get("a") is not None
    memory.put(outcome("d"), name="goto", fence=1)
    assert memory.get("b") is None
    assert memory.get("a") is not None
    for number in range(STOPS + 1):
        memory.put(outcome(f"stop {number}"), name="estop", fence=1)
    assert memory.get("stop 0") is None
    assert memory.get("stop 1") is not None
    assert len(memory) == 3 + STOPS
