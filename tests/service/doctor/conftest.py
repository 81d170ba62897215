"""A computer that the doctor examines."""

from pathlib import Path

import pytest

from tests.service.doctor.pi import Pi


@pytest.fixture
def pi(tmp_path: Path) -> Pi:
    return Pi(tmp_path)
