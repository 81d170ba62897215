"""The units under a real systemd: order, readiness, watchdog, kills, limits, stop and boot."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blimp.link.paths import BROKER_DIR
from blimp.recording.recording import open_recording
from blimp.service.computer.configuration import LOG_DIR
from blimp.service.computer.page_switch import key_path, read_key
from blimp.service.computer.systemd import (
    BROKER,
    FLIGHT,
    PAGE,
    RECORDER,
    RELAY,
    TARGET,
    UNIT_DIR,
    WORKER,
)
from blimp.service.files import write_whole
from tests.directory import socket_directory
from tests.http_client import asked
from tests.redis_server import RedisServer, free_port
from tests.service.under_systemd import (
    CONFIG,
    INSIDE,
    TAKEOFFS,
    System,
    at_rest,
    read_only,
    under_systemd,
)
from tests.signals import stop_process
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SERVICES = (BROKER, FLIGHT, WORKER, RELAY, RECORDER)
SAFE_AFTER_STOP_S = 1.0
SAFE_AFTER_KILL_S = 0.5


@pytest.fixture
def system() -> System | None:
    return System() if INSIDE in os.environ else None


@under_systemd
def test_units_start_in_order_reload_stop_and_leave(system: System) -> None:
    system.install()
    system.wait_until_active(TARGET, *SERVICES)
    ready_us = {unit: int(system.show(unit, "ActiveEnterTimestampMonotonic")) for unit in SERVICES}
    worker_began_us = int(system.show(WORKER, "ExecMainStartTimestampMonotonic"))
    assert max(ready_us[BROKER], ready_us[FLIGHT]) <= worker_began_us < ready_us[WORKER]
    assert system.answers()
    findings = system.examined()
    assert [finding for finding in findings if finding["state"] == "error"] == []
    # Locked memory depends on this machine: no unit can raise a limit that root cannot.
    assert "SCHED_FIFO" not in str(findings)
    assert system.systemctl("is-enabled", TARGET).strip() == "enabled"
    owners = {Path(f"/proc/{system.pid(unit)}").owner() for unit in SERVICES}
    assert owners == {"blimp"}  # install-service has made that user
    modes = {path.name: path.stat().st_mode & 0o777 for path in BROKER_DIR.iterdir()}
    assert (modes["broker.sock"], modes["appendonlydir"]) == (0o770, 0o700)

    mounts = Path(f"/proc/{system.pid(FLIGHT)}/mountinfo").read_text().splitlines()
    access = {fields[4]: fields[5].partition(",")[0] for fields in map(str.split, mounts)}
    assert access["/sys"] == "ro"
    assert access["/sys/devices/platform"] == "rw", "hardware PWM is written there"

    before = [system.pid(unit) for unit in SERVICES]
    system.systemctl("daemon-reload")
    assert [system.pid(unit) for unit in SERVICES] == before

    system.take_off()
    assert "ship is armed: land it and disarm it first" in system.blimp("uninstall-service")
    with system.world() as world:
        system.systemctl("stop", TARGET)
        assert at_rest(world)
    for unit in SERVICES:
        assert (system.show(unit, "ActiveState"), system.show(unit, "Result")) == (
            "inactive", "success"
        )  # fmt: skip
    system.systemctl("start", TARGET)
    system.wait_until_active(FLIGHT, WORKER)
    system.wait_until(system.answers, within_s=60.0)

    assert system.blimp("uninstall-service").startswith("the units are removed; ")
    assert list(UNIT_DIR.glob("blimp*.service")) == [UNIT_DIR / "blimp-world.service"]
    assert system.show(FLIGHT, "ActiveState") == "inactive"


@under_systemd
def test_the_flight_process_waits_for_no_recorder_and_is_recorded_from_its_first_cycle(
    system: System,
) -> None:
    hung = UNIT_DIR / f"{RECORDER}.d" / "hung.conf"
    command = "ExecStart=\nExecStart=/bin/sleep infinity"
    write_whole(hung, f"[Service]\n{command}\nTimeoutStartSec=infinity\n")
    system.install()
    system.wait_until_active(FLIGHT)
    hung.unlink()
    system.systemctl("daemon-reload")
    system.systemctl("restart", RECORDER)
    system.wait_until(lambda: list(LOG_DIR.glob("*.mcap")), within_s=60.0)
    system.systemctl("stop", TARGET)
    (log,) = LOG_DIR.glob("*.mcap")
    with open_recording(log) as recording:
        numbers = [int(one.data["cycle"]) for one in recording.entries({"/snapshot"})]
    assert numbers[0] == 1


@under_systemd
@pytest.mark.timeout(400 + 30 * TAKEOFFS)
def test_a_takeoff_is_not_refused_for_the_program_of_an_arm_that_has_ended(system: System) -> None:
    """BLIMP_TEST_TAKEOFFS=50 for the campaign; every fifth pair follows a restart of the worker."""
    system.install()
    system.wait_until_active(TARGET, *SERVICES)
    # Thirty programs a second, which end as fast: then the goodbye of one was lost.
    system.wait_until(lambda: system.ground("arm")["state"] == "SUCCESS", within_s=60.0)
    ended = []
    for number in range(TAKEOFFS):
        if number:
            ended.append(system.run_ground("arm"))
        ended.append(system.run_ground("takeoff", "0.5"))
        system.wait_until(lambda: system.ground("land")["state"] == "SUCCESS", within_s=90.0)
        # So short a flight may weigh nothing: then the ship stays armed, its motors idle.
        system.wait_until(lambda: system.ground("disarm")["state"] == "SUCCESS", within_s=60.0)
        system.wait_until(lambda: not system.ground("status")["armed"], within_s=60.0)
        if number % 5 == 0:
            system.systemctl("restart", WORKER)
    assert [one for one in ended if one != "SUCCESS"] == []


@under_systemd
def test_a_wrong_configuration_stops_the_units_that_begin_and_no_flight(system: System) -> None:
    system.install()
    system.wait_until_active(TARGET, *SERVICES)
    pid, text = system.pid(FLIGHT), CONFIG.read_text("utf-8")
    write_whole(CONFIG, f"config_version = 2\n{text}", keep_owner=True, mode=0o640)
    others = (WORKER, RELAY, RECORDER)
    for unit in others:
        os.kill(system.pid(unit), signal.SIGKILL)
    for unit in others:
        system.wait_until(partial(system.has_failed, unit), within_s=60.0)
        assert system.show(unit, "ExecMainStatus") == "2"
        assert "written for a newer blimp" in system.journal(unit)
    assert (system.is_active(FLIGHT), system.pid(FLIGHT)) == (True, pid)
    write_whole(CONFIG, text, keep_owner=True, mode=0o640)
    # A start that fails for the moment is tried once more: only 2 ends a unit.
    system.systemctl("restart", "--no-block", *others)
    system.wait_until_active(*SERVICES)
    assert system.pid(FLIGHT) == pid


@under_systemd
def test_each_unit_may_be_killed_or_stopped_and_takes_no_other_with_it(system: System) -> None:
    """One boot for all of it: each costs ten seconds."""
    system.install()
    system.wait_until_active(*SERVICES)
    system.take_off()
    with read_only(Path("/tmp")):  # as a card is after an error, or a full one
        for unit in (BROKER, WORKER, RELAY):
            pids = {other: system.pid(other) for other in SERVICES}
            os.kill(pids[unit], signal.SIGKILL)
            system.wait_until_other_pid(unit, pids[unit])
            changed = {other for other in pids if system.pid(other) != pids[other]}
            assert changed == {unit}
            system.wait_until(system.answers, within_s=60.0)
    pid = system.pid(FLIGHT)
    with system.world() as world:
        watch = Stopwatch()
        os.kill(pid, signal.SIGKILL)
        system.wait_until(lambda: at_rest(world), within_s=60.0)
        safe_s = watch.undisturbed_s()
    system.wait_until_other_pid(FLIGHT, pid)
    system.wait_until(lambda: system.ground("status")["armed"] is False, within_s=60.0)
    assert safe_s < SAFE_AFTER_KILL_S

    # Stopped, it is killed by the watchdog, and its outputs are safe.
    system.take_off()
    pid = system.pid(FLIGHT)
    with system.world() as world:
        watch = Stopwatch()
        stop_process(pid)
        system.wait_until(lambda: at_rest(world), within_s=60.0)
        safe_s = watch.undisturbed_s()
        system.wait_until_other_pid(FLIGHT, pid)
        assert at_rest(world)
    assert "Watchdog timeout" in system.journal(FLIGHT)
    system.wait_until(lambda: system.ground("status")["armed"] is False, within_s=60.0)
    assert safe_s < SAFE_AFTER_STOP_S, system.journal(FLIGHT)

    # One that always dies ends failed, and safe.
    worker = system.pid(WORKER)
    with system.world() as world:
        for _ in range(10):
            system.wait_until(partial(system.has_begun_or_failed, FLIGHT), within_s=60.0)
            if system.has_failed(FLIGHT):
                break
            pid = system.pid(FLIGHT)
            os.kill(pid, signal.SIGKILL)
            system.wait_until(partial(system.runs_no_more, FLIGHT, pid), within_s=60.0)
        assert system.has_failed(FLIGHT)
        assert at_rest(world)
    assert "Start request repeated too quickly" in system.journal(FLIGHT)
    assert system.pid(WORKER) == worker
    system.systemctl("reset-failed", FLIGHT)
    system.systemctl("start", FLIGHT)

    # What is stopped ends at a stop. The kernel may then give SIGTERM to any thread; Python runs
    # its handler in the main one.
    system.wait_until_active(*SERVICES)
    for unit in (RELAY, WORKER):
        stop_process(system.pid(unit))
    stopped_s = time.monotonic()
    system.systemctl("stop", TARGET)
    assert time.monotonic() - stopped_s < 45.0  # systemd would kill it after 90 s
    assert {system.show(unit, "Result") for unit in SERVICES} == {"success"}


@under_systemd
def test_a_boot_without_the_broker_waits_for_it_and_keeps_its_key(system: System) -> None:
    key = CONFIG.with_name("signing.key")
    write_whole(key, "k" * 43, mode=0o600)
    with socket_directory() as directory:
        server = RedisServer(directory)
        system.broker = server.url
        system.configure(signing_key_file=str(key))
        system.install()
        assert not (UNIT_DIR / BROKER).exists()
        system.wait_until_active(TARGET, FLIGHT)
        relay = system.wait_until(lambda: system.pid(RELAY), within_s=60.0)
        worker = system.wait_until(lambda: system.pid(WORKER), within_s=60.0)
        system.wait_until(lambda: "no broker at" in system.journal(WORKER), within_s=60.0)
        assert system.show(WORKER, "ActiveState") == "activating"
        with server:
            system.wait_until_active(WORKER, RELAY)
            assert (system.pid(WORKER), system.pid(RELAY)) == (worker, relay)
            assert system.ground("--timeout", "2", "ping")["state"] != "SUCCESS"  # not signed
            # Without --broker the configuration names broker and key.
            assert system.ran("ping", user="root", program="ground_station")[0] == 0
            os.environ["BLIMP_SIGNING_KEY_FILE"] = str(key)  # of this test's own process
            assert system.answers()


@under_systemd
def test_the_page_is_off_until_its_key_is_made_and_a_user_of_its_own(system: System) -> None:
    port = free_port()
    command = next(line for line in system.unit(PAGE) if line.startswith("ExecStart="))
    write_whole(
        UNIT_DIR / f"{PAGE}.d" / "port.conf",
        f"[Service]\nExecStart=\n{command} --host 127.0.0.1 --port {port}\n",
    )
    system.install()
    system.wait_until_active(*SERVICES)
    assert system.show(PAGE, "ActiveState") == "inactive"
    assert "everybody who has this address may fly the ship" in system.blimp("page", "on")
    assert system.is_active(PAGE)
    (found,) = [one["found"] for one in system.examined() if one["check"] == "page"]
    assert found.startswith("on")
    pid, key = system.pid(PAGE), read_key(key_path(CONFIG))
    users = {Path(f"/proc/{one}").stat().st_uid for one in (pid, system.pid(FLIGHT))}
    assert len(users) == 2
    assert 0 not in users

    def ask(path: str, body: Any = None, token: str = key) -> tuple[int, Any]:
        return asked(f"http://127.0.0.1:{port}", path, body, token=token)

    system.wait_until(lambda: ask("/api/state")[0] == 200, within_s=60.0)
    assert ask("/api/state", token="x" * 32)[0] == 401
    system.wait_until(lambda: ask("/api/command/arm", {})[1]["state"] == "SUCCESS", within_s=60.0)
    system.systemctl("stop", BROKER)  # the stop has a road that needs none: the flight's own socket
    stopped = ask("/api/estop", {})
    assert stopped[1]["ships"]["ship"]["state"] == "SUCCESS", stopped
    system.systemctl("start", BROKER)
    os.kill(system.pid(FLIGHT), signal.SIGKILL)
    system.wait_until_active(FLIGHT)
    system.wait_until(lambda: ask("/api/command/arm", {})[1]["state"] == "SUCCESS", within_s=60.0)
    assert system.pid(PAGE) == pid

    system.blimp("page", "off")
    assert system.show(PAGE, "ActiveState") == "inactive"
    assert not key_path(CONFIG).exists()
    system.systemctl("restart", TARGET)
    system.wait_until_active(FLIGHT, WORKER)
    assert system.show(PAGE, "ActiveState") == "inactive"
