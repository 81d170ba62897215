"""States of a card that are made of a recording, and what is looked for in them."""

import json
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
    recording = Recording(["activity init", None, None, "activity queue", (0, b"x"), None])
    assert recording.moments(["boot", "init", "queue"], 20, 1) == [
        *((place, "init") for place in (1, 2, 3)), *((place, "queue") for place in (4, 5, 6)),
    ]  # fmt: skip
    assert [name for _, name in recording.moments(["init", "queue"], 3, 1)] == [
        "init", "init", "queue",
    ]  # fmt: skip


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


@pytest.mark.parametrize(("duration_s", "good"), [(8.5, True), (7.5, False)])
def test_the_log_of_a_flight_reaches_to_its_end(duration_s: float, good: bool) -> None:
    """A log that begins after the cut is another one."""
    logs = {"flown": (0, duration_s), "after": (20, 9.0)}

    def ask(command: str) -> str:
        for name, (began, lasts_s) in logs.items():
            if name in command:
                started = f"1970-01-01T00:00:{began:02}+00:00"
                return json.dumps({"started": started, "duration_s": lasts_s})
        return "\n".join(logs) if ".mcap" in command else ""

    look = Look(ask, ["done flight 1 5.0", "done flight 2 10.0"])
    look.files()
    assert (not any("the log ends" in fault for fault in look.found.faults)) == good
