"""What `blimp install-service` writes, and what systemd's own tools say about it."""

import json
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from blimp.errors import BlimpError, ConfigError
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.systemd import (
    BROKER,
    CAMERA,
    FLIGHT,
    MAVLINK,
    PAGE,
    RECORDER,
    RELAY,
    TARGET,
    UNITS,
    WORKER,
    Change,
    UnitFile,
    install,
    plan_install,
    plan_uninstall,
    unit_words,
)
from tests.camera.frames import with_camera
from tests.forked import blimp, ran
from tests.needs import not_run

CONFIG = Path("/etc/blimp/blimp.toml")
REMOTE = Configuration(broker="rediss://ground.example/0", signing_key_file="/etc/blimp/k")


def texts(configuration: Configuration, *, user: str = "blimp") -> dict[str, str]:
    change = plan_install(configuration, config_path=CONFIG, user=user)
    return {Path(file.path).name: file.text for file in change.files}


@pytest.fixture
def analyze() -> str:
    """systemd's own checker; skip if it is missing, and under CI fail."""
    found = shutil.which("systemd-analyze")
    if found is None:
        raise not_run("no systemd-analyze here: apt-get install systemd")
    return found


@pytest.fixture
def unit_dir(tmp_path: Path) -> Path:
    for name, text in texts(Configuration(signing_key_file="/etc/blimp/k")).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_systemd_has_nothing_to_say_about_the_units(analyze: str, unit_dir: Path) -> None:
    ended = ran(
        [analyze, "verify", "--recursive-errors=yes", *map(str, sorted(unit_dir.iterdir()))],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{unit_dir}:"},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert {path.name for path in unit_dir.iterdir()} == set(UNITS)


@pytest.mark.parametrize(
    ("unit", "limit"),
    [(FLIGHT, 4.0), (WORKER, 2.0), (RELAY, 2.0), (RECORDER, 2.0), (BROKER, 2.0), (PAGE, 2.0)],
)
def test_exposure_as_systemd_counts_it(
    analyze: str, unit_dir: Path, unit: str, limit: float
) -> None:
    ended = ran(
        [analyze, "security", "--offline=true", "--no-pager", str(unit_dir / unit)], check=True
    )
    found = re.search(rf"exposure level for {unit}: (\d+\.\d)", ended.stdout)
    assert found is not None, ended.stdout
    assert float(found[1]) <= limit


def test_a_broker_elsewhere_needs_no_unit_and_a_key_is_a_credential() -> None:
    local, remote = texts(Configuration()), texts(REMOTE)
    assert set(local) == set(UNITS)
    assert set(remote) == {TARGET, FLIGHT, WORKER, RELAY, PAGE, RECORDER}
    assert "IPAddressDeny=any\n" in local[PAGE]
    assert "IPAddress" not in remote[PAGE], "where that broker is, is not known here"
    assert BROKER not in remote[TARGET]
    assert "LoadCredential" not in local[WORKER]
    for unit in (WORKER, RELAY, PAGE):
        assert "LoadCredential=signing.key:/etc/blimp/k\n" in remote[unit]
        assert "BLIMP_SIGNING_KEY_FILE=%d/signing.key\n" in remote[unit]
    assert not any("ground.example" in text for text in remote.values())  # it may hold a password


def test_the_gateway_of_mavlink_is_a_unit_only_where_it_is_configured() -> None:
    assert MAVLINK not in texts(Configuration())
    asked = Configuration(mavlink="udp:0.0.0.0:14550", mavlink_key_file="/etc/blimp/m")
    units = texts(asked)
    assert MAVLINK in units[TARGET]
    assert " mavlink --config /etc/blimp/blimp.toml" in units[MAVLINK]
    assert asked.options()["listen"] == ["udp:0.0.0.0:14550"]
    assert asked.options()["mavlink_key_file"] == "/etc/blimp/m"


def test_the_camera_is_a_unit_only_of_a_ship_that_has_one(
    analyze: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CAMERA not in texts(Configuration())
    assert CAMERA not in texts(Configuration(airframe="no-such-airframe"))
    ship = tmp_path / "ship.json"
    ship.write_bytes(msgspec.json.encode(with_camera(monkeypatch)))
    units = texts(Configuration(airframe=str(ship), signing_key_file="/etc/blimp/k"))
    assert CAMERA in units[TARGET]
    assert " camera --config /etc/blimp/blimp.toml" in units[CAMERA]
    assert "signing.key:/etc/blimp/k" in units[CAMERA]
    wanted = {"Nice=10", "MemoryMax=250M", "DeviceAllow=char-video4linux rw"}
    assert wanted <= set(units[CAMERA].splitlines())
    assert not re.search("^CPU(Weight|Quota)", units[CAMERA], re.M), "the flight is SCHED_FIFO"
    (tmp_path / CAMERA).write_text(units[CAMERA])
    checked = ran(
        [analyze, "security", "--offline=true", "--no-pager", str(tmp_path / CAMERA)], check=True
    )
    found = re.search(r"exposure level for \S+: (\d+\.\d)", checked.stdout)
    assert found is not None
    assert float(found[1]) <= 3.0
    verified = ran([analyze, "verify", "--recursive-errors=no", str(tmp_path / CAMERA)])
    assert verified.stderr == ""


def test_the_safe_state_needs_no_credential() -> None:
    """With systemd 252, ExecStopPost of a unit with ProtectSystem cannot read one."""
    flight = texts(REMOTE)[FLIGHT]
    assert "LoadCredential" not in flight
    assert "%d" not in flight
    assert re.search(r"^ExecStopPost=-.* safe-state --config /etc/blimp/blimp.toml", flight, re.M)


def test_only_a_missing_user_is_made() -> None:
    missing = plan_install(REMOTE, config_path=CONFIG, user="no-such-user")
    assert missing.commands[0].startswith("useradd --system ")
    assert missing.commands[1] == f"chgrp no-such-user {CONFIG}"
    there = plan_install(REMOTE, config_path=CONFIG, user="root")
    assert there.commands == (
        f"chgrp root {CONFIG}", f"chmod 640 {CONFIG}", "systemctl daemon-reload",
        f"systemctl enable {TARGET}", "sync", f"systemctl restart {TARGET}",
    )  # fmt: skip


@pytest.mark.parametrize("user", ["", "a b", "-x", "x\ny", "%u"])
def test_a_user_that_is_no_name_is_refused(user: str) -> None:
    with pytest.raises(ConfigError, match=r"--user: .* cannot name a user"):
        plan_install(REMOTE, config_path=CONFIG, user=user)


def test_words_are_quoted_as_units_have_them() -> None:
    assert unit_words(["/a/b", "", "x y", "50%", "$HOME", 'q"']) == (
        '/a/b "" "x y" 50%% $$HOME "q\\""'
    )


def test_units_that_are_not_wanted_any_more_are_removed(tmp_path: Path) -> None:
    (tmp_path / BROKER).write_text("old")
    install(Change(files=(UnitFile(str(tmp_path / FLIGHT), "new"),), commands=("true",)))
    assert [path.name for path in tmp_path.iterdir()] == [FLIGHT]
    planned = plan_uninstall(unit_dir=tmp_path)
    assert planned.files == (UnitFile(str(tmp_path / FLIGHT), "new"),)
    assert planned.commands == (f"systemctl stop {FLIGHT}", f"systemctl disable {FLIGHT}")
    assert plan_uninstall(unit_dir=tmp_path / "none") == Change(files=(), commands=())


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    file = UnitFile(str(tmp_path / FLIGHT), "new")
    with pytest.raises(BlimpError, match="chgrp no-such-group /: status 1: chgrp: invalid group"):
        install(Change(files=(file,), commands=("chgrp no-such-group /",)))


def test_a_dry_run_prints_files_and_commands_and_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "blimp.toml"
    words = ["install-service", "--dry-run", "--json", "--config", str(config), "--user", "root"]
    shown = blimp(*words)
    assert shown.returncode == 0
    assert f"no configuration {config}" in shown.stderr
    change = json.loads(shown.stdout)
    assert set(change) == {"files", "commands"}
    assert all(set(file) == {"path", "text"} for file in change["files"])
    assert [Path(file["path"]).name for file in change["files"]] == list(UNITS)
    assert list(tmp_path.iterdir()) == []
    refused = blimp("install-service", "--config", str(config))
    assert refused.returncode == 1
    assert f"configuration {config}: No such file or directory" in refused.stderr
