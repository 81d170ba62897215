"""Hostile frames to the world's socket: it answers or hangs up, and the world goes on."""

import math
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.errors import ConfigError
from blimp.ship.lockstep import Lockstep
from blimp.sim import wire
from blimp.sim.remote import RemoteWorld
from tests.sim.served import served_world

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with served_world() as served:
        yield served


def said(path: Path, *bodies: bytes) -> bytes:
    """Send frames on a connection of their own and return what comes until it is shut."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(DEADLINE_S)
        client.connect(os.fspath(path))
        client.sendall(b"".join(struct.pack("<I", len(body)) + body for body in bodies))
        client.shutdown(socket.SHUT_WR)
        heard = b""
        while data := client.recv(65_536):
            heard += data
        return heard


def array(*items: Any) -> bytes:
    return msgspec.msgpack.encode(items)


@pytest.mark.parametrize("name", ["device", "kind", "self", ""])
def test_a_fault_option_of_any_name_is_an_option(path: Path, name: str) -> None:
    heard = said(path, array(11, "imu", "frozen", {name: "x"}))
    assert f"has no option {name!r}".encode() in heard
    with RemoteWorld(path) as good:
        assert good.i2c(1, 0x68, b"\x75", 1) == b"\x68"


def test_random_frames_stop_nobody(path: Path) -> None:
    chance = random.Random(1)
    values: list[Any] = [None, True, -1, 0, 27, 2**40, 1e308, -1e308, math.nan, math.inf, "", "imu"]
    values += ["frozen", b"", b"\xff" * 300, {}, {"value": 1e308}, [], [1] * 50, "/dev/ttyAMA0"]
    with RemoteWorld(path) as good:
        for _ in range(400):
            tag = chance.choice([*range(1, 12), 64, 99, "x", None])
            said(path, array(tag, *chance.choices(values, k=chance.randrange(6))))
        assert good.i2c(1, 0x68, b"\x75", 1) == b"\x68"
        assert all(math.isfinite(value) for value in good.outputs().values())


def channels(ship: Lockstep, device: str) -> list[str]:
    """The channels that a refusal of an unknown one names."""
    with pytest.raises(ConfigError, match="has no channel") as refused:
        ship.fault(device, "stuck", channel="none of them", value=0.0)
    return str(refused.value).partition("known are ")[2].split(", ")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("stuck", {"value": 1e9}),
        ("stuck", {"value": -1e9}),
        ("drift", {"rate": 1e9}),
        ("noise", {"sigma": 1e9}),
    ],
)
def test_the_largest_faults_are_measured_by_every_chip(kind: str, options: dict[str, Any]) -> None:
    with Lockstep(airframe="twin", seed=1) as ship:
        for device in airframe.load("twin").device:
            for channel in channels(ship, device.name):
                ship.fault(device.name, kind, channel=channel, **options)
        ship.step(3.0)
        assert all(math.isfinite(value) for value in ship.world.outputs.values())
        assert math.isfinite(ship.snapshot().altitude_m)
        assert wire.frame(wire.Truth(ship.truth, ship.world.outputs, outputs_safe=False))


@pytest.mark.parametrize("value", [1e10, -1e308, 10**400, math.nan, math.inf])
def test_a_fault_beyond_all_measure_is_refused_with_the_limit(value: float) -> None:
    with (
        Lockstep(airframe="twin", seed=1) as ship,
        pytest.raises(ConfigError, match=r"'stuck' of 'gps' needs value=<.* -1e\+09 to 1e\+09>"),
    ):
        ship.fault("gps", "stuck", value=value)
