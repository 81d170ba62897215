"""What looks at the server from outside a campaign."""

import os
import signal
import socket
import threading

from blimp.queue.redis.keys import GROUP
from tests.faults.ground import Ground
from tests.faults.server_side import ServerSide
from tests.signals import stop_process


def test_an_emptied_server_runs_no_command_that_was_sent_before(
    ground: Ground, side: ServerSide
) -> None:
    """The server reads in any order what has arrived while it was busy."""
    with socket.socket(socket.AF_UNIX) as late:
        late.settimeout(10.0)
        late.connect(str(ground.directory / "b" / "broker.sock"))
        late.sendall(b"PING\r\n")
        assert late.recv(100) == b"+PONG\r\n"
        side.client.ping()
        stop_process(ground.broker.pid)
        try:
            emptying = threading.Thread(target=side.empty)
            emptying.start()
            emptying.join(0.1)  # its first command has arrived first
            late.sendall(f"XGROUP CREATE stream {GROUP} 0 MKSTREAM\r\n".encode())
        finally:
            os.kill(ground.broker.pid, signal.SIGCONT)
        emptying.join()
        assert side.client.ping()
        assert side.client.dbsize() == 0
