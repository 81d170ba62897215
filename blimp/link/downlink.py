"""Copies snapshots and the record of what happened from the mailbox to the broker.

In the worker process.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Self

from blimp.closing import Closing
from blimp.link.mailbox import MailboxClient
from blimp.link.telemetry import TelemetryPublisher
from blimp.link.timeline import KEPT, Happening
from blimp.queue.protocol.signing import Signer

WAIT_S = 0.1  # without a snapshot, until it looks whether it is closed


class Downlink(Closing):
    """Carries each snapshot from the mailbox to the broker, on its own thread.

    It drops what the broker does not accept, and what comes while the broker has not answered:
    the next snapshot is newer anyway. A slow link carries as many as it can. Of the record nothing
    is dropped: it waits until the broker accepts it.
    """

    def __init__(
        self, *, broker: str, vehicle: str, mailbox: MailboxClient, signer: Signer | None = None
    ) -> None:
        self._publisher = TelemetryPublisher(broker, vehicle, signer=signer)
        self._mailbox = mailbox
        self._stop = threading.Event()
        self._first: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name="downlink", daemon=True)

    def when_flowing(self, call: Callable[[], object]) -> None:
        """Call `call` once, from the thread, when the next snapshot has reached the broker."""
        self._first = call

    def _run(self) -> None:
        seen = None
        waiting: deque[Happening] = deque(maxlen=2 * KEPT)
        while not self._stop.is_set():
            found = self._mailbox.next_snapshot(seen, timeout_s=WAIT_S)
            if found is None:
                continue
            seen = found[0]
            waiting.extend(self._mailbox.happenings())
            if self._publisher.publish(*found):
                self._publisher.tell(waiting)
                first = self._first
                if first is not None:
                    self._first = None
                    first()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._publisher.close()
