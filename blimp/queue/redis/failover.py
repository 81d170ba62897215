"""The brokers of one program: which there are, and which of them is in use."""

from __future__ import annotations

import itertools
import random
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from blimp.errors import ConfigError
from blimp.queue.redis.urls import check_address, hide_password

Strategy = Callable[[Sequence[str]], Iterator[str]]


def _shuffle(urls: Sequence[str]) -> Iterator[str]:
    """Yield `urls` for ever: each once in every round, the rounds in no order."""
    chance = random.Random()
    last = urls[0]
    while True:
        order = list(urls)
        chance.shuffle(order)
        if order[0] == last:
            order.append(order.pop(0))
        yield from order
        last = order[-1]


STRATEGIES: dict[str, Strategy] = {"round-robin": itertools.cycle, "shuffle": _shuffle}


class Brokers:
    """One or several URLs; every part of a program uses the same one. Thread-safe.

    urls: a URL, several in one text with `;` between them, or a sequence.
    strategy: what comes after one that does not answer: "round-robin", "shuffle", or a
        function from the URLs to an iterator that begins with the first and never ends.
    schemes: those the URLs may have; None: any.
    Raises ConfigError for a URL or a strategy that there is not.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        strategy: str | Strategy = "round-robin",
        schemes: Collection[str] | None = None,
    ) -> None:
        self.urls = split_urls(urls)
        for url in self.urls:
            check_address(url, schemes=schemes)
        if isinstance(strategy, str):
            if strategy not in STRATEGIES:
                names = sorted(STRATEGIES)
                raise ConfigError(f"failover strategy {strategy!r}: must be one of {names}")
            strategy = STRATEGIES[strategy]
        self._lock = threading.Lock()
        self._current = self.urls[0]
        self._order = strategy(self.urls)
        if len(self.urls) > 1 and strategy is itertools.cycle:
            next(self._order)  # the first is in use

    def __len__(self) -> int:
        return len(self.urls)

    def __str__(self) -> str:
        return ";".join(hide_password(url) for url in self.urls)

    @property
    def current(self) -> str:
        """The URL in use."""
        return self._current

    def failed(self, url: str) -> None:
        """`url` does not answer: have the next in use, unless another is already."""
        with self._lock:
            if len(self.urls) > 1 and url == self._current:
                self._current = next(self._order)


def split_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Return each URL of a list, or of a text with `;` before the next scheme."""
    parts = re.split(r";\s*(?=[a-z+]+://)", urls) if isinstance(urls, str) else urls
    found = tuple(dict.fromkeys(part.strip(" ;") for part in parts))
    if not found:
        raise ConfigError("broker: must name at least one URL")
    return found
