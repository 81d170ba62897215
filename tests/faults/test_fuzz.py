"""A slice of the fuzzer, the same each time; the campaign is in docs/faults.md."""

import pytest

from tests.faults.fuzz import mutate

# What a whole worker reads takes longer: fewer of it.
SLICES = {
    "message": 1000,
    "broadcast": 1000,
    "mailbox": 2000,
    "serial": 3000,
    "configuration": 1000,
    "mission": 1000,
    "mavlink": 3000,
    "worker-message": 250,
    "worker-broadcast": 30,
}


@pytest.mark.parametrize("name", SLICES)
def test_nothing_moves_and_nothing_dies(name: str) -> None:
    figures = mutate(name, inputs=SLICES[name], seed=7)
    assert figures["failure"] is None
    assert figures["inputs"] >= SLICES[name]
