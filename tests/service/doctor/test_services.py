"""Broker, keys, units and page."""

import re
import socket
from pathlib import Path

import msgspec
import pytest

from blimp.link.camera_control import CameraStatus, ControlServer
from blimp.link.paths import RuntimePaths
from blimp.service.computer.configuration import Configuration
from blimp.service.doctor import examine, services
from tests.camera.frames import with_camera
from tests.directory import socket_directory
from tests.redis_server import RedisServer
from tests.service.doctor.pi import UNIT, Pi, worst


@pytest.mark.parametrize(
    ("options", "state", "found"),
    [
        (["--appendonly", "yes"], "ok", "keeps the queue on disk, evicts nothing"),
        (["--appendonly", "no"], "warning", "forgets the queue"),
        (["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"], "error", "allkeys-lru"),
    ],
)
def test_the_broker_keeps_what_it_is_given(
    pi: Pi, options: list[str], state: str, found: str
) -> None:
    with socket_directory() as directory, RedisServer(directory, *options) as server:
        ship = Configuration(broker=f"redis://:secret@127.0.0.1:{server.port}/0")
        server.client().config_set("requirepass", "secret")
        finding = worst(list(services.broker(pi.computer(configuration=ship))))
    assert finding.state == state, finding
    assert found in finding.found
    assert "secret" not in finding.found


def test_a_broker_that_is_not_there_or_is_no_redis(pi: Pi) -> None:
    (finding,) = services.broker(pi.computer())
    assert (finding.state, finding.cure) == ("error", "sudo blimp install-service")
    pi.install_units(Configuration())
    (finding,) = services.broker(pi.computer())
    assert (finding.state, finding.cure) == ("error", "sudo systemctl start blimp-broker.service")
    rabbit = Configuration(broker="amqp://guest:guest@localhost//")
    (finding,) = services.broker(pi.computer(configuration=rabbit))
    assert (finding.state, "guest:guest" in finding.found) == ("warning", False)


@pytest.mark.parametrize(
    ("broker", "key", "mode", "state", "found"),
    [
        ("redis://127.0.0.1/0", None, 0, "ok", "the broker is this machine's own"),
        ("redis://ground.example/0", None, 0, "error", "who reaches it commands the ship"),
        ("rediss://ground.example/0", "k" * 43, 0o600, "ok", "1, for its owner alone"),
        ("rediss://ground.example/0", "k" * 43, 0o640, "error", "not for its owner alone"),
        ("rediss://ground.example/0", "k" * 43, 0o644, "error", "not for its owner alone"),
        ("redis://ground.example/0", "k" * 43, 0o600, "error", "refused without TLS: rediss://"),
        ("rediss://ground.example/0", "", 0o600, "error", "there is no key in it"),
        ("rediss://ground.example/0", "short", 0o600, "warning", "can be guessed"),
    ],
)
def test_keys_and_their_permissions(
    pi: Pi, broker: str, key: str | None, mode: int, state: str, found: str
) -> None:
    configuration = Configuration(broker=broker)
    if key is not None:
        pi.write("etc/blimp/signing.key", key)
        (pi.root / "etc/blimp/signing.key").chmod(mode)
        configuration = Configuration(broker=broker, signing_key_file="/etc/blimp/signing.key")
    findings = examine(pi.computer(configuration=configuration))
    (finding,) = [one for one in findings if one.check == "keys"]
    assert finding.state == state, finding
    assert found in finding.found
    assert not key or key not in finding.found


def test_units(pi: Pi) -> None:
    (finding,) = services.units(pi.computer())
    assert (finding.state, finding.cure) == ("warning", "sudo blimp install-service")
    pi.install_units(Configuration())
    findings = list(services.units(pi.computer()))
    assert [f.found for f in findings] == ["systemd does not run here"]
    pi.write(UNIT, "[Service]\nUser=pi\nWatchdogSec=0\n")
    (stale, _) = services.units(pi.computer())
    assert stale.found.endswith("write them: blimp-flight.service")
    pi.install_units(Configuration())
    pi.write(
        "etc/systemd/system/blimp-later.service", "# Written by `blimp install-service`. Put\n"
    )
    pi.write("etc/systemd/system/blimp-mine.service", "[Service]\n")
    (stale, _) = services.units(pi.computer())
    assert stale.found.endswith("write them: blimp-later.service")
    assert stale.cure == "sudo blimp install-service"


def test_the_camera_that_runs_is_black_or_does_not_answer(
    pi: Pi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert list(services.camera(pi.computer())) == [], "the ship has none"
    directory = tmp_path / "c"
    directory.mkdir(mode=0o700)
    computer = pi.computer(ship=with_camera(monkeypatch), paths=RuntimePaths(directory))
    (silent,) = services.camera(computer)
    assert (silent.state, silent.cure) == ("warning", "sudo systemctl restart blimp-camera.service")
    seen = CameraStatus(
        camera="imx219", simulated=False, problem="", size=(640, 480), rate_hz=14.9, frames=9,
        missed=0, opened=1, age_s=0.1, exposure_s=0.01, gain=1.0, brightness=90.4, focus=311.0,
        tags=3, steps={},
    )  # fmt: skip
    answers = [seen, msgspec.structs.replace(seen, problem="black: the lens is covered")]
    control = {"status": lambda _: msgspec.to_builtins(answers.pop(0))}
    with ControlServer(computer.paths.camera_control, control):
        (good,) = services.camera(computer)
        (black,) = services.camera(computer)
    assert good.found.startswith("imx219: 15 Hz, light 90 of 255, focus 311 (")
    assert good.found.endswith(", 3 tags seen")
    assert (black.state, black.found) == ("warning", "imx219: black: the lens is covered")


KEY = "k" * 32
HOT = ["10.42.0.1", "192.168.1.5"]


@pytest.mark.parametrize(
    ("key", "mode", "state", "addresses", "grave", "found"),
    [
        (None, 0, "inactive", HOT, "ok", "off; sudo blimp page on lets a phone fly the ship"),
        (None, 0, "active", HOT, "warning", "its key /etc/blimp/page.key is gone"),
        (KEY, 0o600, "active", HOT, "ok", "on: http://10.42.0.1:8421, http://192.168.1.5:8421; "),
        (KEY, 0o600, "active", [], "warning", "no phone can reach it: .* in no network"),
        (KEY, 0o600, "failed", HOT, "warning", "on, and failed$"),
        (KEY, 0o640, "active", HOT, "error", "not for its owner alone: who reads it flies"),
        ("short", 0o600, "failed", HOT, "error", "page.key: no key that can be used"),
    ],
)
def test_the_page_is_off_or_says_where_it_is_and_what_is_wrong(
    pi: Pi, monkeypatch: pytest.MonkeyPatch,
    key: str | None, mode: int, state: str, addresses: list[str], grave: str, found: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(services, "active_state", lambda _: state)
    monkeypatch.setattr(services, "reachable_addresses", lambda: addresses)
    (finding,) = services.page(pi.computer())
    assert (finding.state, finding.found) == ("ok", "off: its unit is not installed")
    pi.install_units(Configuration())
    if key is not None:
        pi.write("etc/blimp/page.key", key)
        (pi.root / "etc/blimp/page.key").chmod(mode)
    finding = worst(list(services.page(pi.computer())))
    assert (finding.state, finding.cure == "") == (grave, grave == "ok"), finding
    assert re.search(found, finding.found), finding
    assert KEY not in finding.found + finding.cure


def test_a_port_of_another_program_keeps_the_page_from_starting(
    pi: Pi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "active_state", lambda _: "activating")
    pi.install_units(Configuration())
    pi.write("etc/blimp/page.key", KEY)
    (pi.root / "etc/blimp/page.key").chmod(0o600)
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(services, "PORT", port)
        (finding,) = services.page(pi.computer())
    assert finding.found == f"on, and activating: port {port} is taken by another program"
    (finding,) = services.page(pi.computer())
    assert finding.found == "on, and activating"
