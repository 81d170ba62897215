"""Completions as complete.lua reads them, without messages of tasks."""

from typing import Any

from blimp.queue.brokers.streams.consumer import CompletionArguments
from blimp.queue.brokers.streams.store import Store


def complete(store: Store, *ends: dict[str, Any]) -> list[Any]:
    """Have the server write each of `ends`: arguments of CompletionArguments.write."""
    arguments = CompletionArguments(options=None, keys=store.keys)  # type: ignore[arg-type]
    for end in ends:
        arguments.write(**end)
    return store.complete(arguments.keys, arguments.args)
