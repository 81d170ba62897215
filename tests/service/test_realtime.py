"""Locked memory and SCHED_FIFO: done where the kernel allows it, and named where not."""

import json
import os
import sys
from pathlib import Path

import pytest

from blimp.config import realtime_from_environment
from blimp.errors import ConfigError
from blimp.service.realtime import BusLoad
from blimp.ship import Lockstep
from tests.forked import ran

ASK = """
import json, os, re, resource, sys, threading
from pathlib import Path
from blimp.service.realtime import make_realtime
if "--without-rights" in sys.argv:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    if os.getuid() == 0:
        os.setuid(65534)
refused = make_realtime()
policies = []
thread = threading.Thread(target=lambda: policies.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
locked = re.search(r"VmLck:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps([refused, int(locked[1]), policies[0]]))
"""


def ask(*arguments: str) -> list[object]:
    ended = ran([sys.executable, "-c", ASK, *arguments])
    assert ended.returncode == 0, ended.stderr
    answer: list[object] = json.loads(ended.stdout)
    return answer


def test_what_is_allowed_is_done_and_the_rest_is_named() -> None:
    refused, locked_kb, policy = ask()
    assert isinstance(refused, list)
    assert isinstance(locked_kb, int)
    assert (locked_kb > 1000) is not any("mlockall" in why for why in refused)
    assert (policy == os.SCHED_FIFO) is not any("SCHED_FIFO" in why for why in refused)


def test_without_rights_both_are_refused_by_name_and_nothing_fails() -> None:
    refused, locked_kb, policy = ask("--without-rights")
    assert refused == [
        "mlockall: RLIMIT_MEMLOCK is 65536 bytes, must be unlimited",
        "SCHED_FIFO: Operation not permitted",
    ]
    assert (locked_kb, policy) == (0, os.SCHED_OTHER)


def test_a_process_that_is_not_to_go_first_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLIMP_REALTIME", "0")
    refused, _, policy = ask()
    assert "SCHED_FIFO: not asked for: BLIMP_REALTIME is 0" in str(refused)
    assert policy == os.SCHED_OTHER
    with pytest.raises(ConfigError, match="BLIMP_REALTIME must be 0 or 1, not 'no'"):
        realtime_from_environment({"BLIMP_REALTIME": "no"})


@pytest.mark.parametrize(("speed_hz", "slow"), [(400_000, False), (50_000, True), (None, False)])
def test_a_bus_that_is_too_slow_for_the_twin_is_named(
    tmp_path: Path, speed_hz: int | None, slow: bool
) -> None:
    if speed_hz is not None:
        file = tmp_path / "sys/class/i2c-adapter/i2c-1/of_node/clock-frequency"
        file.parent.mkdir(parents=True)
        file.write_bytes(speed_hz.to_bytes(4, "big"))
    load = BusLoad(rate_hz=100.0)
    with Lockstep("twin") as ship:
        for _ in range(100):
            load.note(ship.i2c_bits())
            ship.step(0.01)
    found = load.slow(tmp_path)
    assert len(found) == slow
    assert not slow or "i2c-1: 50 kHz" in found[0]
