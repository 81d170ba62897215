"""The camera's unit under a real systemd, with the simulated camera; one boot for all of it."""

import os
import re
import signal
from pathlib import Path

import pytest

from blimp.errors import LinkError
from blimp.link.camera_control import CameraStatus, camera_status
from blimp.service.computer.systemd import BROKER, CAMERA, FLIGHT, TARGET, UNIT_DIR, WORKER
from tests.forked import ran
from tests.service.under_systemd import INSIDE, RUN, System, under_systemd

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

OTHERS = (BROKER, FLIGHT, WORKER)
PHOTOS = Path("/var/lib/blimp/photos/ship")  # inside
EXPOSED = 3.0  # as `systemd-analyze security` counts it, of 10; below 4 is OK


@pytest.fixture
def system() -> System | None:
    return System(flown="gtmab-eye") if INSIDE in os.environ else None


def seen() -> CameraStatus | None:
    """Return what the camera says of itself once it has frames."""
    try:
        found = camera_status(RUN / "camera-control.sock")
    except LinkError:
        return None
    return found if found.frames and not found.problem else None


@under_systemd
def test_the_camera_is_started_of_a_ship_that_has_one_and_comes_back(system: System) -> None:
    system.install()
    system.wait_until_active(TARGET, CAMERA, *OTHERS)
    status = system.wait_until(seen, within_s=90.0)
    assert status is not None
    assert (status.camera, status.simulated, status.size) == ("imx296", True, (728, 544))
    assert Path(f"/proc/{system.pid(CAMERA)}").owner() == "blimp"
    assert os.getpriority(os.PRIO_PROCESS, system.pid(CAMERA)) == 10
    assert len(os.sched_getaffinity(system.pid(CAMERA))) == 1
    assert os.sched_getscheduler(system.pid(FLIGHT)) == os.SCHED_FIFO
    said = ran(["systemd-analyze", "security", "--no-pager", CAMERA], check=True).stdout
    found = re.search(r"exposure level for \S+: (\d+\.\d)", said)
    assert found is not None
    assert float(found[1]) <= EXPOSED, said

    assert system.run_ground("photo") == "SUCCESS"
    (photo,) = PHOTOS.glob("*Z-????????????????.jpg")
    assert photo.read_bytes().startswith(b"\xff\xd8\xff")
    assert photo.stat().st_mode & 0o777 == 0o640

    pids = {unit: system.pid(unit) for unit in (CAMERA, *OTHERS)}
    os.kill(pids[CAMERA], signal.SIGKILL)
    system.wait_until_other_pid(CAMERA, pids[CAMERA])
    system.wait_until(seen, within_s=90.0)
    assert [unit for unit in OTHERS if system.pid(unit) != pids[unit]] == []
    assert system.run_ground("photo") == "SUCCESS"
    assert len(list(PHOTOS.glob("*Z-????????????????.jpg"))) == 2

    # Of a ship without a camera there is no such unit, also where there was one.
    system.configure(airframe="twin")
    system.install()
    system.wait_until_active(TARGET, *OTHERS)
    assert CAMERA not in system.show(TARGET, "Wants")
    assert not (UNIT_DIR / CAMERA).exists()
    assert not system.is_active(CAMERA)
