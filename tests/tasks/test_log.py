"""What a worker writes on standard error, and from which level on."""

from __future__ import annotations

import pytest

from blimp.tasks.log import LEVELS, stderr_logger


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", 3), ("info", 3), ("warning", 2), ("error", 1)],
)
def test_what_is_below_the_level_is_not_written(
    level: str, written: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = stderr_logger(level=level, worker="pad")
    log.info("consuming")
    log.warning("lease lost")
    log.error("name lost")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == written
    assert all("worker=pad" in line for line in lines)
    assert level in LEVELS
