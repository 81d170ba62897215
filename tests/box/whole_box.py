"""The card loses what it should: `make box-test`, with QEMU's own client."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.box.card import BLOCK, Card
from tests.directory import socket_directory


@pytest.fixture
def card(tmp_path: Path) -> Path:
    image = tmp_path / "card.raw"
    image.write_bytes(bytes(8 * BLOCK))
    return image


def test_a_cut_loses_only_what_was_not_flushed(card: Path) -> None:
    """As QEMU's own client writes to it."""
    with socket_directory() as directory:
        for seed in range(8):
            with Card(card, directory / "card.sock") as served:
                url = f"nbd+unix:///?socket={served.socket_path}"
                kept = f"write -P {seed + 1} 0 8k"
                lost = f"write -P {seed + 101} 8k 16k"
                script = "\n".join([kept, "flush", lost, "abort"])
                command = ["qemu-io", "-t", "writeback", "-f", "raw", url]
                subprocess.run(command, input=script, text=True, check=False, capture_output=True)
                unflushed, gone = served.cut(random.Random(seed))
            assert unflushed == 4
            data = card.read_bytes()
            assert data[: 2 * BLOCK] == bytes([seed + 1]) * 2 * BLOCK
            new = sum(data[at] == seed + 101 for at in range(2 * BLOCK, 6 * BLOCK, BLOCK))
            assert new == 4 - gone
