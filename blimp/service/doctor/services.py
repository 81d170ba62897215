"""Checks of what the ship works with: broker, keys, units, page."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from blimp.ability import camera_of
from blimp.config import check_broker_is_closed, read_signing_keys
from blimp.errors import BlimpError, ConfigError, LinkError
from blimp.link.camera_control import camera_status
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.urls import SCHEMES, hide_password, link_errors
from blimp.service.computer.page_switch import key_path, read_key
from blimp.service.computer.systemd import (
    BROKER,
    CAMERA,
    FLIGHT,
    PAGE,
    RELAY,
    UNIT_DIR,
    WORKER,
    active_state,
    installed_units,
    plan_install,
)
from blimp.service.doctor.computer import FLIGHT_UNIT, Computer, Finding, error, ok, warning
from blimp.service.stack.broker import MINIMUM_SERVER_MAJOR
from blimp.web.listening import reachable_addresses
from ground_station.page import PORT

BROKER_TIMEOUT_S = 0.5
KEY_LENGTH = 32  # characters
INSTALL = "sudo blimp install-service"


def broker(computer: Computer) -> Iterator[Finding]:
    url = computer.configuration.broker
    shown = hide_password(url)
    if url.partition("://")[0] not in SCHEMES:
        yield warning(f"{shown}: not a Valkey or Redis, so not checked", "see docs/decisions/0004")
        return
    try:
        with link_errors(url), open_redis(url, timeout_s=BROKER_TIMEOUT_S) as client:
            info = client.info()
    except BlimpError as failed:
        start = "start it, and check the URL and the network"
        if computer.configuration.has_local_broker:
            is_there = computer.text(str(UNIT_DIR / BROKER))
            start = f"sudo systemctl start {BROKER}" if is_there else INSTALL
        yield error(str(failed), start)
        return
    version = str(info.get("valkey_version") or info.get("redis_version", "?"))
    if int(version.partition(".")[0] or 0) < MINIMUM_SERVER_MAJOR:
        yield error(
            f"{shown}: version {version}, {MINIMUM_SERVER_MAJOR} is needed",
            "install Redis 7.0 or newer, or any Valkey",
        )
        return
    lacks = False
    if not info.get("aof_enabled"):
        lacks = True
        yield warning(f"{shown}: forgets the queue when it ends", "set  appendonly yes")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        lacks = True
        yield error(
            f"{shown}: drops messages when its memory is full ({policy})",
            "set  maxmemory-policy noeviction",
        )
    if not lacks:
        yield ok(f"{shown}: version {version}, keeps the queue on disk, evicts nothing")


def emergency(computer: Computer) -> Iterator[Finding]:
    """Whether a stop of the ground would reach the flight process that runs."""
    snapshot = computer.snapshot
    if snapshot is None:
        yield ok("no flight process runs: there is nothing to stop")
    elif snapshot.deaf:
        yield error(
            f"a stop may not arrive: {snapshot.deaf}",
            f"journalctl -u {WORKER} -u {RELAY}; write the broker's users again: blimp broker acl",
        )
    else:
        yield ok("a stop by the broker arrives: worker and relay hear their own probes")


def camera(computer: Computer) -> Iterator[Finding]:
    """Whether the camera's process runs, and what its pictures are like."""
    if camera_of(computer.airframe) is None:
        return
    try:
        found = camera_status(computer.paths.camera_control)
    except LinkError as failed:
        yield warning(f"{failed}; the ship flies without it", f"sudo systemctl restart {CAMERA}")
        return
    if found.problem:
        cure = "check its cable, its cover and the light; journalctl -u " + CAMERA
        yield warning(f"{found.camera}: {found.problem}", cure)
        return
    light = "" if found.brightness is None else f", light {found.brightness:.0f} of 255"
    focus = (
        "" if found.focus is None else f", focus {found.focus:.0f} (turn the lens: more is sharper)"
    )
    tags = "" if found.tags is None else f", {found.tags} tags seen"
    yield ok(f"{found.camera}: {found.rate_hz:.0f} Hz{light}{focus}{tags}")


def keys(computer: Computer) -> Iterator[Finding]:
    file = computer.configuration.signing_key_file
    if file is None:
        if computer.configuration.broker_is_of_this_machine:
            yield ok("none: the broker is this machine's own")
        else:
            yield error(
                "none, and the broker is on the network: who reaches it commands the ship",
                "sudo blimp init --new-key --force; copy the key to the ground station",
            )
        return
    path = computer.path(file)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield error(f"{file}: not for its owner alone", f"sudo chmod 600 {file}")
        return
    found = read_signing_keys(path)
    try:
        check_broker_is_closed(computer.configuration.broker, found)
    except ConfigError as refused:
        yield error(str(refused), f"change the broker's URL in {computer.config_path}")
        return
    if min(map(len, found)) < KEY_LENGTH:
        yield warning(
            f"{file}: a key of less than {KEY_LENGTH} characters can be guessed",
            "sudo blimp init --new-key --force",
        )
    else:
        yield ok(f"{file}: {len(found)}, for its owner alone")


def units(computer: Computer) -> Iterator[Finding]:
    """Whether the units are installed, as this version writes them, and how they are."""
    if not computer.text(FLIGHT_UNIT):
        yield warning("not installed", INSTALL)
        return
    wanted = plan_install(
        computer.configuration, config_path=computer.config_path, user=computer.user
    )
    stale = [
        Path(file.path).name
        for file in wanted.files
        if computer.text(file.path) != file.text.strip()
    ]
    wanted_names = {Path(file.path).name for file in wanted.files}
    there = installed_units(computer.path(str(UNIT_DIR)))
    stale += [path.name for path in there if path.name not in wanted_names]
    if stale:
        yield warning(
            f"not as this version and configuration write them: {', '.join(stale)}",
            INSTALL,
        )
    if not computer.path("/run/systemd/system").exists():
        yield warning("systemd does not run here", "boot the Pi")
        return
    for name in (FLIGHT, WORKER, RELAY):
        state = active_state(name)
        if state == "active":
            yield ok(f"{name}: active")
        else:
            finding = error if state == "failed" else warning
            yield finding(f"{name}: {state}", f"journalctl -u {name}; systemctl restart {name}")


def page(computer: Computer) -> Iterator[Finding]:
    """Whether the ship serves its own page, where, and what keeps a phone from it."""
    if not computer.text(str(UNIT_DIR / PAGE)):
        yield ok("off: its unit is not installed")
        return
    state, name = active_state(PAGE), key_path(computer.config_path)
    key = computer.path(str(name))
    if not key.exists():
        if state == "active":
            yield warning(f"it runs, and its key {name} is gone", "sudo blimp page on, or off")
        else:
            yield ok("off; sudo blimp page on lets a phone fly the ship")
        return
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield error(
            f"{name}: not for its owner alone: who reads it flies the ship",
            "sudo blimp page on --new-key",
        )
    elif os.access(key, os.R_OK):
        try:
            read_key(key)
        except ConfigError:
            yield error(f"{name}: no key that can be used", "sudo blimp page on --new-key")
            return
    if state not in ("active", ""):
        try:
            socket.create_server(("", PORT)).close()
        except OSError:
            cure = f"end that program: sudo ss -ltnp 'sport = :{PORT}'"
            yield warning(f"on, and {state}: port {PORT} is taken by another program", cure)
        else:
            yield warning(f"on, and {state}", f"journalctl -u {PAGE}; systemctl restart {PAGE}")
    elif urls := [f"http://{address}:{PORT}" for address in reachable_addresses()]:
        yield ok(f"on: {', '.join(urls)}; {name} is its key")
    else:
        cure = "join a network, or open a hotspot (see docs/pi.md)"
        yield warning("on, and no phone can reach it: this computer is in no network", cure)
