"""Several flights from one moment: what all of them have in common is flown once."""

import os
import traceback
import warnings
from collections.abc import Callable
from functools import partial, wraps

from blimp.ship import Lockstep
from tests.sim.rig import Rig


def branching(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a fork: the `rig` that it shares with others stays where it is for them."""

    @wraps(test)
    def run(rig: Rig, **arguments: object) -> None:
        branch(rig, partial(test, rig, **arguments))

    return run


def branch(ship: Lockstep | Rig, fly: Callable[[], None]) -> None:
    """Fly on in a fork of the process; `ship` stays where it is. Fails as `fly` does."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # of a fork beside threads: it starts and waits for none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        said = b"it did not come to an end"
        try:
            if isinstance(ship, Lockstep):
                for line in ship.world.computer.lines.values():
                    line.flush()  # what is left on the serial lines is there for all forks
            fly()
            said = b""
        except BaseException:
            said = traceback.format_exc().encode()
        finally:  # nothing else of the test may run in a fork
            os.write(writing, said[-60_000:])
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        failure = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert (status, failure) == (0, ""), failure
