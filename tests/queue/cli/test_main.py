"""What the package lists, and the command that runs it."""

import pkgutil
import sys
import tomllib
from pathlib import Path

import pytest

import blimp.queue


def test_what_the_package_has_is_listed_and_has_a_docstring() -> None:
    assert set(blimp.queue.__all__) <= set(dir(blimp.queue))
    for name in blimp.queue.__all__:
        assert (getattr(blimp.queue, name).__doc__ or "").strip(), name


def test_the_command_runs_the_module_and_has_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    run = pkgutil.resolve_name(project["scripts"]["blimp-queue"])
    monkeypatch.setattr(sys, "argv", ["/usr/bin/blimp-queue", "--help"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: blimp-queue ")
