"""States of a card that are made of a recording, and what is looked for in them."""

import random
from pathlib import Path

import pytest

from tests.box.card import BLOCK, Event, Flash
from tests.box.expectations import Look
from tests.box.states import Recording


def test_a_cut_copy_holds_what_was_flushed_and_a_part_of_the_rest(tmp_path: Path) -> None:
    image, cut = tmp_path / "card.raw", tmp_path / "cut.raw"
    image.write_bytes(bytes(8 * BLOCK))
    events: list[Event] = []
    seen = set()
    with Flash(image, events) as flash:
        flash.write(BLOCK // 2, b"\1" * BLOCK)  # half of two blocks
        flash.flush()
        flash.write(2 * BLOCK, b"\2" * 4 * BLOCK)
        for seed in range(16):
            with flash.copy(cut) as copy:
                unflushed, lost = copy.cut(random.Random(seed))
            assert unflushed == 4
            data = cut.read_bytes()
            assert data[: 2 * BLOCK] == bytes(BLOCK // 2) + b"\1" * BLOCK + bytes(BLOCK // 2)
            assert sum(data[at] == 2 for at in range(2 * BLOCK, 6 * BLOCK, BLOCK)) == 4 - lost
            seen.add(lost)
        assert flash.read(2 * BLOCK, 1) == b"\2"  # the copies' cuts are not its own
    assert {0, 4} < seen
    assert events[:3] == [(BLOCK // 2, b"\1" * BLOCK), None, (2 * BLOCK, b"\2" * 4 * BLOCK)]


def test_moments_lie_in_the_activity_whose_name_they_have() -> None:
    recording = Recording(["activity boot", None, None, "activity queue", (0, b"x"), None])
    moments = recording.moments(["boot", "queue"], 20, 1)
    assert moments == sorted(moments)
    assert {at for at, name in moments if name == "boot"} == {1, 2, 3}
    assert {at for at, name in moments if name == "queue"} == {4, 5, 6}


@pytest.mark.parametrize(("there", "good"), [(20, True), (13, True), (12, False)])
def test_a_message_may_be_lost_in_the_documented_window_alone(there: int, good: bool) -> None:
    said = [f"done queue {number} {number / 2}" for number in range(1, 21)]
    look = Look(lambda _: f'{{"cuts": {{"ready": {there}, "scheduled": 0}}}}', said)
    look.queue()
    assert (not look.found.faults) == good


@pytest.mark.parametrize(
    ("said", "good"), [("begin upgrade 1 1", True), ("done upgrade 1 2", False)]
)
def test_a_program_is_whole_once_its_installation_was_said_to_be_done(
    said: str, good: bool
) -> None:
    answers = iter(["half.py", ""])
    look = Look(lambda _: next(answers), [said])
    look.program()
    assert (not look.found.faults) == good
