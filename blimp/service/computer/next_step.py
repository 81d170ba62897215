"""What `blimp` alone says: where it runs, and which commands are next."""

from collections.abc import Sequence
from pathlib import Path

from blimp.link.registry import Registration


def next_step(*, stacks: Sequence[Registration], units: Sequence[Path], computer: str) -> str:
    """Return the words for a person.

    stacks: the simulated ships that run here. units: the installed units of systemd. computer:
    the model that the kernel names, empty if it names none.
    """
    if stacks:
        ships = ", ".join(stack.vehicle for stack in stacks)
        many = len(stacks) > 1
        where = f"{len(stacks)} simulated ships run" if many else "A simulated ship runs"
        where = f"{where} on this machine: {ships}."
        option = f" --vehicle {stacks[0].vehicle}" if many else ""
        steps = [
            (f"ground{option} status", "what the ship says of itself"),
            (f"ground{option} page", "see and command it in a browser"),
            (f"ground{option} arm", "let its propellers turn; then: ground takeoff 3"),
        ]
    elif units:
        where = "The units of a ship are installed on this computer."
        steps = [
            ("sudo blimp doctor", "what would keep the ship from flying, with its cure"),
            ("ground status", "what the ship says of itself"),
            ("sudo blimp page on", "fly it from a phone: prints the code for it"),
        ]
    elif computer.startswith("Raspberry Pi"):
        where = f"This is a {computer}, and no units of a ship are installed on it."
        steps = [
            ("sudo blimp init", "write the configuration of this ship"),
            ("sudo blimp doctor", "what would keep it from flying, with its cure"),
            ("sudo blimp install-service", "start it now, and whenever the computer starts"),
        ]
    else:
        where = "No ship runs on this machine."
        steps = [
            ("blimp demo", "fly a simulated mission and watch it: a minute and a half"),
            ("blimp up --sim", "run a simulated ship until Ctrl-C, to fly it yourself"),
        ]
    steps.append(("blimp --help", "all commands"))
    width = max(len(command) for command, _ in steps)
    return "\n".join([where, "", *(f"  {name:{width}}  {words}" for name, words in steps)])
