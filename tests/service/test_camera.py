"""The camera's process with a real one's limits: no camera, in use, killed, stopped, started again.

/dev/null is a device that the kernel says is no camera.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.ability import camera_of
from blimp.airframe import CameraRow
from blimp.clock import SystemClock
from blimp.errors import ConfigError, LinkError
from blimp.link.camera_control import camera_status
from blimp.link.paths import RuntimePaths
from blimp.service.camera import CameraOptions, _found, watch
from blimp.service.notify import READY, NotifyListener
from blimp.types import CameraPose
from tests.camera.frames import frame

pytestmark = pytest.mark.process
WAIT_S = 60.0


class Started:
    """`blimp camera` in a runtime directory, once it is ready; `with` it, and it is killed."""

    def __init__(self, directory: Path, listener: NotifyListener) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "blimp", "camera", "--device", "/dev/null",
             "--runtime-dir", str(directory)],
            env=os.environ | {"NOTIFY_SOCKET": str(listener.path)}, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.pid = self._process.pid
        while (self.pid, READY) not in listener.received():
            assert select.select([listener], [], [], WAIT_S)[0], "it is not ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self._process.send_signal(number)
        _, words = self._process.communicate(timeout=WAIT_S)
        return self._process.returncode, words.decode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[NotifyListener]:
    made = NotifyListener(path=tmp_path / "notify.sock")
    yield made
    made.close()


def test_it_goes_on_without_a_camera_and_after_a_kill(
    directory: Path, listener: NotifyListener
) -> None:
    control = RuntimePaths(directory).camera_control
    with Started(directory, listener) as first:
        found = camera_status(control, timeout_s=WAIT_S)
        assert (found.camera, found.frames, found.simulated) == ("/dev/null", 0, False)
        assert os.getpriority(os.PRIO_PROCESS, first.pid) == min(19, os.nice(0) + 10)
        assert len(os.sched_getaffinity(first.pid)) == 1
        os.kill(first.pid, signal.SIGSTOP)
        with pytest.raises(LinkError, match="no answer"):
            camera_status(control, timeout_s=0.2)
        first.end(signal.SIGKILL)
    with pytest.raises(LinkError, match="Connection refused"):
        camera_status(control, timeout_s=WAIT_S)
    with Started(directory, listener) as second:
        shown = subprocess.run(
            [sys.executable, "-m", "blimp", "camera", "status", "--json",
             "--runtime-dir", str(directory)],
            capture_output=True, check=True, timeout=WAIT_S,
        )  # fmt: skip
        assert json.loads(shown.stdout)["camera"] == "/dev/null"
        status, words = second.end(signal.SIGTERM)
        assert (status, words.count("Inappropriate ioctl")) == (0, 1), words
    assert list(directory.iterdir()) == []


def test_a_ship_without_a_camera_has_no_such_process(directory: Path) -> None:
    assert camera_of(airframes.load("twin")) is None
    options = CameraOptions(
        airframe="twin", runtime_dir=directory, simulated=True, device=None, say=print
    )
    with pytest.raises(ConfigError, match="twin has no camera"):
        watch(options, on_stop=lambda _: None)


def test_a_camera_without_a_map_gives_signs_of_life_and_says_why_it_has_no_position(
    tmp_path: Path,
) -> None:
    ship = airframes.load("gtmab-eye")
    row = camera_of(ship)
    assert row is not None
    for tags, reason in (("", "no map of tags"), (str(tmp_path / "none.toml"), "no position: ")):
        sent: list[bytes] = []
        said: list[str] = []
        asked = CameraRow(tags=tags)
        (step,) = _found(ship, row, asked, sent.append, SystemClock(), say=said.append)
        for number in (3, 4):
            step.take(frame(number))
        poses = [msgspec.msgpack.decode(data, type=CameraPose) for data in sent]
        assert [pose.sequence for pose in poses] == [1, 2]
        assert poses[0].reason.startswith(reason)
        assert poses[0].position_ned_m is None
        assert poses[0].exposed_s == frame(3).t_s
        assert len(said) == bool(tags)
