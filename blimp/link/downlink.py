"""Copies snapshots from the mailbox to the broker, in the worker process."""

import threading
from collections.abc import Callable
from typing import Self

from blimp.closing import Closing
from blimp.link.mailbox import MailboxClient
from blimp.link.telemetry import TelemetryPublisher
from blimp.queue.protocol.signing import Signer

PERIOD_S = 0.1


class Downlink(Closing):
    """Carries snapshots from the mailbox to the broker, ten a second, on its own thread.

    It drops what the broker does not accept: the next snapshot is newer anyway.
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
        published = None
        while not self._stop.wait(PERIOD_S):
            snapshot, age_s = self._mailbox.snapshot(), self._mailbox.snapshot_age_s()
            if snapshot is None or age_s is None or snapshot is published:
                continue
            if self._publisher.publish(snapshot, age_s):
                published = snapshot
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
