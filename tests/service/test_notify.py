"""Readiness: one datagram to the supervisor."""

import os
from pathlib import Path

from blimp.config import watchdog_limit_s
from blimp.service import notify
from blimp.service.notify import NotifyListener


def test_readiness_is_heard_with_the_number_the_kernel_vouches_for(tmp_path: Path) -> None:
    listener = NotifyListener(path=tmp_path / "notify.sock")
    notify.send(notify.READY, address=str(listener.path))
    notify.send(notify.READY_TO_ARM, address=str(listener.path))
    assert listener.received() == [(os.getpid(), "READY=1"), (os.getpid(), "STATUS=ready to arm")]
    assert listener.received() == []
    listener.close()
    listener.close()
    assert not (tmp_path / "notify.sock").exists()


def test_without_a_supervisor_nothing_is_reported(tmp_path: Path) -> None:
    notify.send(notify.READY, address=None)
    notify.send(notify.READY, address=str(tmp_path / "gone.sock"))


def test_the_limit_of_silence_is_the_supervisors_and_for_this_process_alone() -> None:
    assert watchdog_limit_s({}) is None
    assert watchdog_limit_s({"WATCHDOG_USEC": "0"}) is None
    assert watchdog_limit_s({"WATCHDOG_USEC": "soon"}) is None
    assert watchdog_limit_s({"WATCHDOG_USEC": "600000"}) == 0.6
    assert watchdog_limit_s({"WATCHDOG_USEC": "600000", "WATCHDOG_PID": str(os.getpid())}) == 0.6
    assert watchdog_limit_s({"WATCHDOG_USEC": "600000", "WATCHDOG_PID": "1"}) is None
