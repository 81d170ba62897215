"""What is asked of each face of the ship, and what a driver of one has."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import ClassVar

from blimp.closing import Closing

# Each is a method of `Face`: what goes on while the stop is pressed, and once more after it.
QUESTIONS = {
    "strangers": "who has no right, and asks for an arm",
    "half": "half a request, and then nothing",
    "flood": "requests as fast as the face can be asked, a second long",
    "silence": "connections that say nothing, more than the face has room for",
    "forged": "an arm with a signature or a token that is not genuine",
    "replayed": "an arm that was accepted once, sent again",
    "old": "a genuine arm that was sent long ago",
}
WITHIN_S = 10.0
FLOOD_HZ = 600.0  # chosen: the rate at which the stop of a gateway was once lost for 28 presses
FLOODED = 100  # before the stop is pressed

Trouble = AbstractContextManager[None]


class Face(Closing):
    """One road to the ship, with an honest operator on it.

    hears: the listeners of the product that are this face, as `listeners` names them. without: the
    questions that cannot be asked, each with the reason.
    """

    name: ClassVar[str]
    hears: ClassVar[tuple[str, ...]]
    without: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def stop(self) -> None:
        """Press the stop once, and return when it is confirmed. Raises TimeoutError."""

    def strangers(self) -> Trouble:
        raise NotImplementedError

    def half(self) -> Trouble:
        raise NotImplementedError

    def flood(self) -> Trouble:
        raise NotImplementedError

    def silence(self) -> Trouble:
        raise NotImplementedError

    def forged(self) -> Trouble:
        raise NotImplementedError

    def replayed(self) -> Trouble:
        raise NotImplementedError

    def old(self) -> Trouble:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing."""


@contextmanager
def before_and_after(send: Callable[[], object]) -> Iterator[None]:
    send()
    yield
    send()


@contextmanager
def flooding(send: Callable[[], object]) -> Iterator[None]:
    """Send on and on, from before the block until its end."""
    ended, flooded = threading.Event(), threading.Event()

    def run() -> None:
        sent = 0
        while not ended.wait(1.0 / FLOOD_HZ):
            with suppress(OSError):  # refused, or no room: that is one answer to a flood
                send()
            sent += 1
            if sent >= FLOODED:
                flooded.set()

    thread = threading.Thread(target=run, name="flood")
    thread.start()
    try:
        assert flooded.wait(WITHIN_S)
        yield
    finally:
        ended.set()
        thread.join()
