from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.ship import Lockstep
from tests.service.bench.bench import TWIN_TEXT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(TWIN_TEXT, encoding="utf-8")
    file.chmod(0o640)
    return file


@pytest.fixture
def ship() -> Iterator[Lockstep]:
    with Lockstep(airframe="twin", bench=True) as ship:
        yield ship
