"""Chords whose workers are killed: every body once, whatever was cut off."""

from collections.abc import Callable
from pathlib import Path

import pytest

from blimp.queue import State, TaskApp, chord, signature
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until
from tests.queue.look import Look

CHORDS, PARTS = 40, 4


def test_every_body_runs_once_where_workers_are_killed(
    url: str, start_worker: Callable[..., WorkerProcess], transport: str, tmp_path: Path, look: Look
) -> None:
    if transport != "streams":
        pytest.skip("the stock transport loses what a killed worker was taking")
    followed = tmp_path / "followed"

    def lines() -> list[str]:
        return followed.read_text().splitlines() if followed.exists() else []

    with TaskApp("killed", broker=url, result_backend=url) as app:
        sent = [
            chord(
                [
                    signature("chord.part", (number + place,), app=app)
                    if place % 2
                    else signature("chord.part", (number + place,), app=app)
                    | signature("quick", app=app)
                    for place in range(PARTS)
                ],
                signature("chord.body", (number,), app=app),
            )()
            for number in range(CHORDS)
        ]
        for least in (1, 8, 20, 30):
            worker = start_worker(url)
            wait_until(lambda least=least: len(lines()) >= least, "no body begins")
            worker.kill()
        start_worker(url).wait_ready()
        for handle in sent:
            assert handle.wait(DEADLINE_S).state is State.SUCCESS
    wait_until(lambda: look.waiting("killed") + look.in_hand(app="killed") == 0, "not all is done")
    seen = {tuple(line.split()) for line in lines()}  # one that was cut off may write twice
    assert seen == {("body", str(number), handle.id) for number, handle in enumerate(sent)}
