import socket
from pathlib import Path

import pytest

from blimp.errors import BusError
from blimp.hardware.datagrams import in_directory


def send(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(data, str(path))


def test_what_was_sent_is_received_in_order(tmp_path: Path) -> None:
    opened = in_directory(tmp_path, "camera.sock")
    assert opened.receive() == []
    send(tmp_path / "camera.sock", b"first")
    send(tmp_path / "camera.sock", b"second")
    assert opened.receive() == [b"first", b"second"]
    opened.close()
    opened.close()
    assert not (tmp_path / "camera.sock").exists()


def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    left = in_directory(tmp_path, "camera.sock")
    opened = in_directory(tmp_path, "camera.sock")
    send(tmp_path / "camera.sock", b"to the new one")
    assert (left.receive(), opened.receive()) == ([], [b"to the new one"])
    opened.close()
    left.close()


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="nowhere"):
        in_directory(tmp_path / "nowhere", "camera.sock")
