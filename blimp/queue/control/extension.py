"""Remote control, broadcasts and revocation, as an extension of each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.queue.control.broadcast import BroadcastListener
from blimp.queue.control.remote_control import RemoteControl, WorkerHandle
from blimp.queue.control.revoke import Revoking
from blimp.queue.extensions import Extension

if TYPE_CHECKING:
    from blimp.queue.worker.worker import Worker

LISTENING_S = 0.5


class ControlExtension(Extension):
    """Listens for broadcasts, revocations and remote-control commands."""

    def __init__(self, worker: Worker) -> None:
        app = worker.app
        self._worker = worker
        self.revoking = Revoking(
            app=app, in_flight=worker.in_flight, runner=worker.runner, log=worker.log
        )
        self.remote = RemoteControl(
            WorkerHandle(
                app=app,
                name=worker.name,
                consumer_loop=worker.consumer_loop,
                in_flight=worker.in_flight,
                pools=worker.pools,
                revoking=self.revoking,
                stop=worker.stop,
                extensions=worker.extensions,
                clock=worker.logical_clock,
                log=worker.log,
                began_s=app.clock.now_s(),
            )
        )
        self.listener = BroadcastListener(
            app=app,
            worker=worker.name,
            on_revoke=self.revoking.hear,
            on_command=self.remote.hear if self.remote.is_on else None,
            log=worker.log,
        )

    def starting(self) -> None:
        app = self._worker.app
        if app.broadcasts or app.capabilities.is_shared:
            self.listener.start()

    def consuming(self) -> None:
        app = self._worker.app
        if app.broadcasts and not self.listener.wait_listening(app.timeout_s):
            # Tasks are taken all the same: a ship that can be flown can also be landed.
            self._worker.log.error("emergency broadcasts not received yet")
        elif self.remote.is_on and not self._worker.ready.is_set():
            self.listener.wait_listening(LISTENING_S)  # a worker that is ready answers
        self.revoking.load()

    def beat(self, alive: bool) -> None:
        self.revoking.refresh(alive)

    def stopping(self) -> None:
        self.listener.close()
        self.remote.close()
