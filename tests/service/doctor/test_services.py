"""Broker, keys and units."""

from pathlib import Path

import pytest

from blimp.service.computer.configuration import Configuration
from blimp.service.doctor import examine, services
from tests.directory import socket_directory
from tests.redis_server import RedisServer
from tests.service.doctor.pi import UNIT, Pi, worst


@pytest.fixture
def pi(tmp_path: Path) -> Pi:
    return Pi(tmp_path)


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
