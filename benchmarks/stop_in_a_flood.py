"""From a pressed emergency stop to motors off while a program floods the ship with commands.

`python -m benchmarks.stop_in_a_flood`. A program that has control of the ship sends RATE commands a
second, each as any program does: a task in the ship's queue. Before each press a motor turns; the
press goes by the broker alone, as from another machine, and the simulated world is asked all the
time whether its motors are off. One JSON line; exit status 1 if a stop took longer than a second,
or was not confirmed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.estop import VEHICLE, running
from benchmarks.figures import exit_status, make_parser, spread
from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient
from blimp.queue.brokers.streams.envelope import pack_task
from blimp.queue.protocol.message import NORMAL, TaskMessage, write_message
from blimp.queue.redis.client import RedisServer, open_redis
from blimp.queue.redis.keys import Keys
from blimp.sim.remote import RemoteWorld
from blimp.tasks.authority import HEADER, holder_of, pilots
from blimp.tasks.client import VehicleClient, vehicle_queue
from blimp.types import Command, OutcomeState

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

LIMIT_S = 1.0  # docs/pilots.md promises it
BATCH_S = 0.02  # between two packets of commands
PATIENCE_S = 10.0
PAUSE_S = 0.2


def flood(broker: str, token: int, rate: float, over: Event, sent: Any) -> None:
    """Send `rate` commands a second until `over`; count them in `sent`."""
    client, queue = open_redis(broker, timeout_s=PATIENCE_S), vehicle_queue(VEHICLE)
    headers: dict[str, Any] = {"blimp_vehicle": VEHICLE, "blimp_source": "flood", HEADER: token}
    began_s = time.monotonic()
    for number in itertools.count():
        if over.is_set():
            return
        due = int((time.monotonic() - began_s) * rate) - sent.value
        pipeline = client.pipeline(transaction=False)
        for _ in range(max(0, due)):
            message = TaskMessage(
                id=str(uuid.uuid4()),
                task="blimp.servo",
                kwargs={"name": "tilt", "deg": float(number % 30)},
                queue=queue,
                priority=NORMAL,
                issued_ms=int(time.time() * 1000),
                ttl_s=5.0,
                headers=headers,
            )
            properties, body = write_message(message, signer=None)
            one = pack_task(body, headers=properties, queue=queue, priority=NORMAL)
            level = Keys().queue(queue).levels[one.level]
            pipeline.xadd(level, {"h": one.head, "b": one.body})
        pipeline.execute()
        sent.value += max(0, due)
        over.wait(BATCH_S)


class Bench:
    """A motor to stop: it is turned by the mailbox, for the queue is full."""

    def __init__(self, mailbox: MailboxClient, world: RemoteWorld, authority: int) -> None:
        self._mailbox, self._world, self._authority = mailbox, world, authority

    def do(self, what: str, /, **arguments: Any) -> None:
        command = Command(
            id=str(uuid.uuid4()), name=what, arguments=arguments, authority=self._authority
        )
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:  # its socket is full, too
            outcome = self._mailbox.call(command, timeout_s=0.25)
            if outcome is not None and outcome.state is OutcomeState.REFUSED:
                raise RuntimeError(f"{what}: {outcome.reason}")
            if outcome is not None:
                return
        raise RuntimeError(f"{what}: no answer within {PATIENCE_S:g} s")

    def turn(self) -> None:
        self.do("arm", force=True)
        self.do("mode", name="MANUAL")
        self.do("motor", name="tail", percent=-40.0, seconds=30.0)
        while self._world.outputs()["tail"] > -0.3:
            time.sleep(0.002)

    def stopped_after_s(self, pressed_s: float) -> float:
        while not self._world.report().outputs_safe:
            if time.monotonic() - pressed_s > PATIENCE_S:
                break
        return time.monotonic() - pressed_s


def measure(*, rate: float, presses: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    over, sent = context.Event(), context.Value("q", 0, lock=False)
    with (
        running("--bench") as ship,
        VehicleClient(ship.broker, VEHICLE) as client,
        MailboxClient(server_path=ship.paths.flight, clock=SystemClock()) as mailbox,
        RemoteWorld(ship.paths.world) as world,
        ThreadPoolExecutor(1) as presser,
    ):
        pool = pilots(RedisServer(ship.broker), VEHICLE, ttl_s=600.0)
        pool.add(VEHICLE)
        token = pool.acquire(holder_of("flood"), 0.0).token
        bench = Bench(mailbox, world, 2 * token)
        client.ready_to_stop()
        bench.turn()
        program = context.Process(target=flood, args=(ship.broker, token, rate, over, sent))
        program.start()
        while sent.value < rate:  # a second's worth
            time.sleep(0.01)
        began_s, began = time.monotonic(), sent.value
        stopped_s, states = [], []
        for _ in range(presses):
            bench.turn()
            pressed_s = time.monotonic()
            stop = presser.submit(client.estop, timeout_s=PATIENCE_S)
            stopped_s.append(bench.stopped_after_s(pressed_s))
            states.append(stop.result().state)
            time.sleep(PAUSE_S)
        took_s, count = time.monotonic() - began_s, sent.value - began
        over.set()
        program.join()
    unconfirmed = sum(state != "SUCCESS" for state in states)
    return {
        "ok": unconfirmed == 0 and max(stopped_s) <= LIMIT_S,
        "simulated": True,
        "commands_per_s": round(count / took_s),
        "presses": presses,
        "unconfirmed": unconfirmed,
        **spread(stopped_s),
    }


def main() -> int:
    parser = make_parser("benchmarks.stop_in_a_flood", __doc__)
    parser.add_argument("--presses", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10_000.0)
    options = parser.parse_args()
    figures = measure(rate=options.rate, presses=options.presses)
    return exit_status("benchmarks.stop_in_a_flood", figures)


if __name__ == "__main__":
    sys.exit(main())
