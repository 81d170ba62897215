"""A consumer to be killed: `url name queue mode`.

mode keep: takes and acknowledges none. mode work: counts each in the hash `done` of the
server, then acknowledges. mode one: takes one, and acknowledges it when its input says so.
Prints `ready`, `took <body> <fence> <monotonic>`, `lost <tag>` and `ack <answer>`.
"""

import contextlib
import sys
import time
from typing import Any

import kombu


def say(line: str) -> None:
    """Print a line in one piece: two threads say what happens here."""
    sys.stdout.write(line + "\n")


def main() -> None:
    url, name, queue, mode = sys.argv[1:]
    options = {"consumer": name, "on_lease_lost": lambda tag: say(f"lost {tag}")}
    connection = kombu.Connection(
        url, transport="blimp.queue.kombu_transport:Transport", transport_options=options
    )
    connection.connect()
    transport = connection.transport
    channel = connection.channel()
    channel.basic_qos(0, 8, False)

    def take(message: Any) -> None:
        fence = message.properties["delivery_count"]
        if mode == "work":
            transport.link.client.hincrby("done", message.body, 1)
            message.ack()
            return
        say(f"took {message.decode()} {fence} {time.monotonic()}")
        if mode == "one":
            while sys.stdin.readline().strip() != "ack":
                pass
            say(f"ack {transport.leases.ack(message.delivery_tag)}")

    kombu.Consumer(
        channel, [kombu.Queue(queue, kombu.Exchange(""), routing_key=queue)], on_message=take
    ).consume()
    say("ready")
    while True:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=1.0)


if __name__ == "__main__":
    main()
