"""People who may only connect to a gateway; a stop beside them: tests/contracts/test_faces.py."""

import asyncio
import math
import socket
import time
from typing import Any

import pytest
from pymavlink.dialects.v20 import all as dialect

from blimp.config import log_directory
from blimp.errors import ConfigError
from ground_station.mavlink.ftp import BURST, DATA_BYTES, HEADER, OPEN
from ground_station.mavlink.gateway import GatewayOptions, run
from ground_station.mavlink.peer import ANSWER_FACTOR, UNPROVEN_BPS
from ground_station.mavlink.places import network_place
from tests.ground_station.mavlink.test_gateway import (
    DEADLINE_S,
    environment,
    opened,
    port,
)
from tests.ground_station.ship import FlyingShip

__all__ = ["environment", "port"]
pytestmark = [pytest.mark.long]


def packed(sent: Any, *, system: int = 200) -> bytes:
    return bytes(sent.pack(dialect.MAVLink(None, system, 190)))


def file_request(opcode: int, data: bytes = b"", *, size: int | None = None) -> bytes:
    head = HEADER.pack(0, 0, opcode, len(data) if size is None else size, 0, 0, 0)
    payload = list((head + data).ljust(HEADER.size + DATA_BYTES, b"\0"))
    return packed(dialect.MAVLink_file_transfer_protocol_message(0, 1, 1, payload))


def record(twin: FlyingShip) -> bytes:
    """Have a recorded flight; return the request that opens it."""
    log_directory().mkdir(parents=True)
    name = f"{twin.vehicle}-000007-20261128T101112Z.mcap"
    (log_directory() / name).write_bytes(bytes(500_000))
    return file_request(OPEN, f"/logs/{name}".encode())


def test_who_has_not_shown_that_it_hears_is_sent_little(twin: FlyingShip, port: int) -> None:
    """Anybody can be named as the sender of a datagram."""
    openly = record(twin)
    with opened(port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forged:
        forged.connect(("127.0.0.1", port))
        forged.settimeout(DEADLINE_S)

        def asked(*requests: bytes, enough: float = math.inf) -> tuple[int, int, bytes]:
            """Return the bytes of requests and of their answers, and a PING that came.

            It reads for a second, or until enough came.
            """
            came, ping, began_s = 0, b"", time.monotonic()
            for one in requests:
                forged.send(one)
            within_s = 1.0 if math.isinf(enough) else DEADLINE_S
            while time.monotonic() - began_s < within_s and came < enough:
                data = forged.recv(65536)  # telemetry comes all the time
                if data[7] in (4, 22, 110, 118, 120):  # PING, and what may wait
                    came += len(data)
                if data[7] == 4:
                    ping = data
            return sum(map(len, requests)), came, ping

        burst = file_request(BURST, size=DATA_BYTES)
        bulk = [
            packed(dialect.MAVLink_log_request_list_message(1, 1, 0, 65535)),
            packed(dialect.MAVLink_log_request_data_message(1, 1, 1, 0, 2**32 - 1)),
            packed(dialect.MAVLink_param_request_list_message(1, 1)), openly, burst, burst,
        ]  # fmt: skip
        gave, got, ping = asked(*bulk)
        assert 0 < got < 2 * ANSWER_FACTOR * gave + 2 * UNPROVEN_BPS
        (question,) = dialect.MAVLink(None).parse_buffer(ping)
        wrong = dialect.MAVLink_ping_message(question.time_usec ^ 1, question.seq, 1, 1)
        gave, got, _ = asked(packed(wrong), burst)
        assert got < 2 * ANSWER_FACTOR * gave + 2 * UNPROVEN_BPS
        right = dialect.MAVLink_ping_message(question.time_usec, question.seq, 1, 1)
        asked(packed(right), burst, enough=60.0 * DATA_BYTES)


def test_a_listener_that_strangers_reach_needs_a_key_or_says_so() -> None:
    for text in ("udp:0.0.0.0:0", "tcp:[::]:0", "udp:192.168.1.7:0", "tcp:somewhere:0"):
        options = GatewayOptions(
            vehicles=("nobody",), broker=None, signing_key_file=None, system=1,
            listen=(network_place(text),), connect=(), serial=(), mavlink_key_file=None,
        )  # fmt: skip
        with pytest.raises(ConfigError, match="--mavlink-key-file"):
            asyncio.run(run(options, on_ready=lambda _: None))
    for text in ("udp:127.0.0.1:0", "tcp:[::1]:0", "udp:localhost:0"):
        assert network_place(text).is_of_this_machine
