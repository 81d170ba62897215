"""How a ship can be wired otherwise than its file says, and each cure in plain words.

The check of the wires before a flight and the check of the outputs in flight share these names and
sentences.
"""

from enum import StrEnum

import msgspec

from blimp.airframe import Airframe


class Wired(StrEnum):
    """What is otherwise. The values are part of results and logs."""

    REVERSED = "reversed"  # a motor's push, of full strength
    PROPELLER = "propeller"  # turned round or of the other pitch: reversed and weaker
    SWAPPED = "swapped"  # two outputs follow each other's command
    WEAK = "weak"
    DEAD = "dead"
    SERVO = "servo reversed"
    MOUNTED = "mounted otherwise"  # the IMU


class Miswiring(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wired otherwise.

    names: the outputs, two if they are swapped; of a mounting the IMU. mounting: the chip axes that
    point forward, right and down, as the option of that name.
    """

    way: Wired
    names: tuple[str, ...]
    mounting: tuple[str, ...] = ()

    def cure(self, airframe: Airframe) -> str:
        """Return what seems to be, and what a person does about it: at most 200 letters."""
        first = self.names[0]
        row = _driver(airframe, first)
        both = " and ".join(self.names)
        match self.way:
            case Wired.REVERSED:
                return (
                    f"{first} seems to push the wrong way: exchange two wires of its motor, or "
                    f"its two pins in the file, at {row}"
                )
            case Wired.PROPELLER:
                return (
                    f"{first} seems to push the wrong way and weakly: its propeller is the wrong "
                    "way round or of the other pitch; exchange it"
                )
            case Wired.SWAPPED:
                rows = " and ".join(dict.fromkeys(_driver(airframe, name) for name in self.names))
                return (
                    f"{both} seem swapped: exchange their plugs, or their names in the file, in "
                    f"outputs of {rows}"
                )
            case Wired.WEAK:
                return (
                    f"{first} seems to push with about half its thrust: look at its propeller, "
                    "its plug and its battery"
                )
            case Wired.DEAD:
                return f"{first} seems to do nothing: check its plug, its wires and {row}"
            case Wired.SERVO:
                return (
                    f"{first} seems to turn the wrong way: exchange min_pulse_s and max_pulse_s of "
                    "this servo in the file, or turn its horn round"
                )
            case Wired.MOUNTED:
                axes = ", ".join(f'"{axis}"' for axis in self.mounting)
                return (
                    f"{first} seems to be mounted otherwise: turn the board, or write mounting = "
                    f"[{axes}] into its options in the file"
                )


def _driver(airframe: Airframe, output: str) -> str:
    """Return the device that drives an output, "" of what is no output."""
    return next((row.name for row in airframe.device if output in row.outputs.values()), "")
