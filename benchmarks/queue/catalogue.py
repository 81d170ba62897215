"""Who is measured. A new peer is a file in `peers/` and a line here."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(sys.executable).parent
PEERS = "benchmarks.queue.peers"
OWN_FAMILY = "blimp"
# What ratios are against; see `report`.
FLOOR, TASKIQ, CELERY = "floor streams", "taskiq 64", "celery threads 8"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One way of running one library.

    family: what `--peers` names. worker: its command line, the first word a program of its
    environment. first: the size of the first backlog, until its speed is known.
    """

    name: str
    family: str
    module: str
    worker: tuple[str, ...]
    first: int = 4_000
    guest: bool = True  # lives in the peers' environment

    def command(self, guests: Path) -> list[str]:
        program, *words = self.worker
        return [str(self.environment(guests) / program), *words]

    def environment(self, guests: Path) -> Path:
        """Return the directory of its programs."""
        return guests if self.guest else OWN


def _celery(name: str, *words: str) -> Peer:
    module = f"{PEERS}.celery"
    command = ("celery", "-A", module, "worker", "--loglevel", "WARNING", *words)
    return Peer(name=f"celery {name}", family="celery", module=module, worker=command)


def _own(name: str, family: str, file: str, *words: str, first: int) -> Peer:
    module = f"{PEERS}.{file}"
    command = ("python", "-m", *(words or (module,)))
    return Peer(name=name, family=family, module=module, worker=command, first=first, guest=False)


def _blimp(name: str, file: str) -> Peer:
    words = ("blimp.queue", "worker", "-A", f"{PEERS}.{file}:app", "--log-level", "warning")
    return _own(name, "blimp", file, *words, first=8_000)


CATALOGUE = (
    _own("floor streams", "floor", "floor_streams", first=100_000),
    _own("floor lists", "floor", "floor_lists", first=40_000),
    _own("kombu consumer", "kombu", "kombu", first=8_000),
    _celery("threads 8", "--pool", "threads", "--concurrency", "8"),
    _celery("solo", "--pool", "solo"),
    _celery("prefork 2", "--pool", "prefork", "--concurrency", "2"),
    Peer(
        name="taskiq 64",
        family="taskiq",
        module=f"{PEERS}.taskiq",
        worker=(
            "taskiq", "worker", f"{PEERS}.taskiq:broker",
            "--workers", "1", "--max-async-tasks", "64", "--log-level", "WARNING",
        ),
        first=10_000,
    ),
    _blimp("blimp", "blimp"),
    _blimp("blimp async", "blimp_async"),
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(peer.family for peer in CATALOGUE))
