"""What QGroundControl asks at connection, in its order and from its source: docs/mavlink.md.

Its `requestMessage` is one COMMAND_LONG, and it goes on at the acknowledgement or at the message.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymavlink import mavutil

from ground_station.mavlink.ftp import NOT_FOUND, OPEN
from ground_station.mavlink.modes import MODES
from tests.ground_station.mavlink.test_ftp import Files
from tests.ground_station.mavlink.test_gateway import Station, gateway, opened
from tests.ground_station.ship import FlyingShip

pytestmark = pytest.mark.long
ACCEPTED, UNSUPPORTED = 0, 3
REQUEST_MESSAGE, SET_MESSAGE_INTERVAL = 512, 511
FENCE, RALLY, COMMAND_INT, MAVLINK_2 = 1 << 14, 1 << 15, 8, 1 << 13


@pytest.fixture
def station(twin: FlyingShip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Station]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with gateway(twin) as port, opened(port) as station:
        yield station


def test_all_that_it_asks_at_connection_is_answered(station: Station) -> None:
    def request(number: int, first: float = 0.0) -> int:
        return station.command(REQUEST_MESSAGE, number, first, 0.0, 0.0, 0.0, 0.0, 0.0)

    assert request(148) == ACCEPTED
    version = station.get("AUTOPILOT_VERSION")
    for bit in (FENCE, RALLY, COMMAND_INT, MAVLINK_2):  # without them it does not ask for plans
        assert version.capabilities & bit
    assert request(300) == ACCEPTED
    raw = station.get("UNKNOWN_300").get_msgbuf()  # PROTOCOL_VERSION: pymavlink has it no more
    fields = raw[10:-2].ljust(22, b"\0")  # zeros at the end are not sent
    assert struct.unpack_from("<HHH", fields) == (200, 100, 200)
    assert mavutil.x25crc([*raw[1:-2], 217]).crc == struct.unpack("<H", raw[-2:])[0]
    assert request(435, 0.0) == ACCEPTED
    modes = [station.get("AVAILABLE_MODES") for _ in MODES]
    assert [one.mode_index for one in modes] == list(range(1, modes[0].number_modes + 1))
    beat = station.get("HEARTBEAT")
    assert beat.custom_mode in [one.custom_mode for one in modes]
    for unknown in (
        397,
        395,
        280,
    ):  # COMPONENT_METADATA, ..._INFORMATION, GIMBAL_MANAGER_INFORMATION
        assert request(unknown) == UNSUPPORTED

    assert Files(station).refused(OPEN, "@PARAM/param.pck") == NOT_FOUND
    station.send.param_request_list_send(1, 0)
    first = station.get("PARAM_VALUE")
    rest = [station.get("PARAM_VALUE") for _ in range(first.param_count - 1)]
    assert {one.param_index for one in (first, *rest)} == set(range(first.param_count))
    station.send.param_request_read_send(1, 1, b"", 3)
    assert station.get("PARAM_VALUE").param_index == 3
    for _ in range(2):
        station.send.system_time_send(1_795_860_672_000_000, 0)

    for kind in (0, 1, 2):
        station.send.mission_request_list_send(1, 1, kind)
        count = station.get("MISSION_COUNT")
        assert (count.mission_type, count.count) == (kind, 0)
        station.send.mission_ack_send(1, 1, 0, kind)
    for number, answer in ((31, ACCEPTED), (30, ACCEPTED), (105, UNSUPPORTED)):
        assert station.command(SET_MESSAGE_INTERVAL, number, 1e5) == answer
    station.send.request_data_stream_send(1, 1, 0, 4, 1)
    assert station.command(410) == ACCEPTED
    station.get("HOME_POSITION")
    assert station.command(REQUEST_MESSAGE, 242) == ACCEPTED
