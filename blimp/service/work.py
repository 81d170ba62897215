"""The processes between the broker and the flight process: the task worker, and the relay."""

from __future__ import annotations

import os
import select
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.config import (
    broker_url_from_environment,
    check_broker_is_closed,
    notify_address,
    photo_directory,
    read_signing_keys,
    remote_control_from_environment,
    signing_keys_from_environment,
    trace_settings_from_environment,
    vehicle_name,
)
from blimp.errors import BlimpError, ConfigError
from blimp.link.mailbox import MailboxClient
from blimp.link.paths import own_paths
from blimp.link.telemetry import signer_of
from blimp.queue.log import TaskLogs
from blimp.queue.neighbours import neighbour
from blimp.queue.watching import Watching
from blimp.service import notify

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.service.compose import OnStop

WORKER_MEMORY_MB = 200.0  # five times its need: a worker above it leaks, and restarts
LISTENING_S = 0.5
GREETING_S = 1.0  # of the relay, which says whether it hears: a third of a subscription


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    vehicle: str
    broker: str | None
    runtime_dir: Path | None
    signing_key_file: Path | None = None  # None: as the environment says
    watching: Watching = Watching()


def check(options: WorkerOptions) -> None:
    """Raise ConfigError for a name, a broker's URL, a key or a variable that no restart cures."""
    _, broker = _reached(options)
    check_broker_is_closed(broker, _keys(options))
    remote_control_from_environment()
    trace_settings_from_environment()


def work(options: WorkerOptions, *, on_stop: OnStop) -> None:
    """Run the task worker: commands to the mailbox, snapshots to the ground."""
    from blimp.link.downlink import Downlink
    from blimp.queue.worker.shutdown import Launch
    from blimp.queue.worker.worker import Worker
    from blimp.tasks.fleet import FleetMember

    vehicle, broker = _reached(options)
    paths = own_paths(options.runtime_dir)
    clock = SystemClock()
    supervisor = notify_address()
    with (
        MailboxClient(server_path=paths.flight, path=paths.worker, clock=clock) as mailbox,
        Downlink(
            broker=broker, vehicle=vehicle, mailbox=mailbox, signer=signer_of(_keys(options))
        ) as downlink,
    ):

        def ready() -> None:
            downlink.when_flowing(partial(notify.send, notify.READY, address=supervisor))

        app = _ship_app(options, mailbox=mailbox, clock=clock)
        member = FleetMember(
            link=app.broker_link,
            vehicle=vehicle,
            snapshot_age_s=mailbox.snapshot_age_s,
            clock=clock,
        )
        app.on_link(member.look)
        watching = msgspec.structs.replace(
            options.watching, trace=trace_settings_from_environment()
        )
        with _watched(app, watching), member:
            worker = Worker(
                app=app,
                name=vehicle,
                max_memory_mb=WORKER_MEMORY_MB,
                launch=Launch.of_this_process(),
                on_ready=ready,
            )
            on_stop(worker.stop)
            status = worker.run()
    if status:
        raise BlimpError(f"the worker ended with status {status}; its log has the reason")


def _watched(app: TaskApp, watching: Watching) -> AbstractContextManager[None]:
    """Watch the app's next worker, made inside; load nothing if nothing is asked for."""
    if not watching.is_wanted:
        return TaskLogs(form="text", level=app.log_level).installed()
    watched: AbstractContextManager[None] = neighbour("watching")(app, watching)
    return watched


def relay(options: WorkerOptions, *, on_stop: OnStop) -> None:
    """Pass emergency stops from the broker to the flight process, and nothing else.

    The worker does so, too. This process does it while the worker restarts or is busy.
    """
    from blimp.queue.broadcast.receiver import BroadcastReceiver

    vehicle, _ = _reached(options)
    paths = own_paths(options.runtime_dir)
    clock = SystemClock()
    supervisor = notify_address()
    wake, waker = os.pipe()

    def stop() -> None:
        os.write(waker, b"x")

    on_stop(stop)
    with MailboxClient(server_path=paths.flight, path=paths.relay, clock=clock) as mailbox:
        app = _ship_app(options, mailbox=mailbox, clock=clock)
        with _watched(app, options.watching):
            receiver = BroadcastReceiver(
                app=app,
                worker=f"{vehicle}-relay",
                on_revoke=lambda *_: None,
                log=app.make_log(level=app.log_level, worker=f"{vehicle}-relay"),
            )
            receiver.start()
            try:
                while not receiver.wait_listening(LISTENING_S):
                    if select.select([wake], [], [], 0.0)[0]:
                        return
                notify.send(notify.READY, address=supervisor)
                # A process that was stopped (SIGSTOP) may take its SIGTERM in another thread, which
                # does not wake this one: Python runs the handler only when it looks again.
                while not select.select([wake], [], [], GREETING_S)[0]:
                    mailbox.greet(link=False, deaf=receiver.deaf())
            finally:
                receiver.close()


def _reached(options: WorkerOptions) -> tuple[str, str]:
    """Return the vehicle's name and its broker's URL. Raises ConfigError."""
    vehicle = vehicle_name(options.vehicle, where="--vehicle")
    broker = options.broker or broker_url_from_environment()
    if broker is None:
        raise ConfigError("no broker: give --broker URL, or set BLIMP_BROKER_URL")
    return vehicle, broker


def _keys(options: WorkerOptions) -> tuple[str, ...] | None:
    """Return the signing keys. Raises ConfigError."""
    if options.signing_key_file is None:
        return signing_keys_from_environment()
    return read_signing_keys(options.signing_key_file)


def _ship_app(options: WorkerOptions, *, mailbox: MailboxClient, clock: Clock) -> TaskApp:
    from blimp.service.parameters import FlownFile
    from blimp.service.photos import ShipPhotos
    from blimp.tasks.app import build_ship_app

    paths = own_paths(options.runtime_dir)
    vehicle, broker = _reached(options)
    keys = _keys(options)
    check_broker_is_closed(broker, keys)
    flown = FlownFile(paths.airframe)
    return build_ship_app(
        flown=flown,
        photos=ShipPhotos(photo_directory() / vehicle, control=paths.camera_control, flown=flown),
        vehicle=vehicle,
        broker=broker,
        mailbox=mailbox,
        clock=clock,
        signing_key=keys,
        remote_control=remote_control_from_environment(),
    )
