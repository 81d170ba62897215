"""The simulated u-blox receiver against its receiver description."""

import struct
from typing import Any

import pytest

from tests.sim.bench import Bench


def fitted() -> tuple[Bench, Any]:
    bench = Bench()
    return bench, bench.fit("gps", chip="gps-ubx", baud=115200)


def sent(bench: Bench) -> bytes:
    data = b"".join(data for _, data in bench.sent)
    bench.sent.clear()
    return data


def test_it_answers_the_golden_poll_and_a_wrong_checksum_not() -> None:
    bench, chip = fitted()
    chip.receive(bytes.fromhex("b5620a0400000e35"))
    bench.run(0.1)
    assert sent(bench) == b""
    chip.receive(bytes.fromhex("b5620a04"))
    chip.receive(bytes.fromhex("00000e34"))
    bench.run(0.1)
    answer = sent(bench)
    assert answer[:6] == bytes.fromhex("b5620a042800")
    assert answer[6:].startswith(b"ROM CORE")


def test_after_power_on_it_sends_sentences_once_a_second() -> None:
    bench, _ = fitted()
    bench.run(3.5)
    data = sent(bench)
    assert data.count(b"$GPGGA") == data.count(b"$GPRMC") == 3
    assert b"\xb5\x62" not in data


def test_it_is_set_to_solutions_at_a_rate() -> None:
    bench, chip = fitted()
    bench.truth.position_ned_m = (10.0, 20.0, -5.0)
    chip.receive(bytes.fromhex("b562060103000107011351"))  # CFG-MSG NAV-PVT 1
    for sentence in range(6):
        body = bytes((0x06, 0x01, 3, 0, 0xF0, sentence, 0))
        a = sum(body) % 256
        b = sum((len(body) - i) * v for i, v in enumerate(body)) % 256
        chip.receive(b"\xb5\x62" + body + bytes((a, b)))
    chip.receive(bytes.fromhex("b562060806006400010001007a12"))  # CFG-RATE 100 ms
    bench.run(0.5)
    acks = sent(bench)
    assert acks.count(bytes.fromhex("b5620501")) == 8
    assert bytes.fromhex("b562050102000608163f") in acks
    bench.run(2.0)
    data = sent(bench)
    assert b"$GP" not in data
    frames = data.split(bytes.fromhex("b56201075c00"))[1:]
    assert len(frames) in range(10, 21)
    payload = frames[-1][:92]
    lon, lat = struct.unpack_from("<ii", payload, 24)
    home = bench.ship.home
    assert lat * 1e-7 == pytest.approx(home.latitude_deg + 10.0 / 111e3, abs=5e-5)
    assert lon * 1e-7 == pytest.approx(home.longitude_deg + 20.0 / 90e3, abs=5e-5)
    assert payload[20:22] == b"\x03\x01"


def test_what_it_does_not_know_it_refuses() -> None:
    bench, chip = fitted()
    body = bytes((0x06, 0x8A, 0, 0))
    a = sum(body) % 256
    b = sum((len(body) - i) * v for i, v in enumerate(body)) % 256
    chip.receive(b"\xb5\x62" + body + bytes((a, b)))
    bench.run(0.1)
    assert sent(bench)[:8] == bytes.fromhex("b56205000200068a")
