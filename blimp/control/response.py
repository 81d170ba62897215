"""What the supervisor does for each action of the failsafe: one table, contact by action.

Each pair has one row, whatever their order. `python -m benchmarks.failsafe_page` draws the table.
"""

from enum import Enum

import msgspec

from blimp.control.failsafe import Action
from blimp.types import Contact


class Stance(Enum):
    """What is believed of the ship's contact, and what flies it: one of them holds at a time."""

    RESTS = Contact.RESTING, "on the pad, motors idle, or no height tells that it has left it"
    STRAYED = Contact.RESTING, "rested after a failsafe, and has moved off"
    STANDS = Contact.TOUCHING, "on the ground, in a mode that may idle there, not weighed light"
    STARTS = Contact.TOUCHING, "the same, and a takeoff or climb is asked for"
    DOWN = Contact.PRESSED, "a landing has it on the ground: on trial, pressed, or idle in doubt"
    BLIND = Contact.UNKNOWN, "comes down without attitude or height"
    FLIES = Contact.AIRBORNE, "in the air, or light, or landing"

    def __init__(self, contact: Contact, text: str) -> None:
        self.contact = contact
        self.text = text


class Deed(Enum):
    NOTHING = "nothing"
    GROUND = "disarm; on feet that hold: idle, armed, and no flight before an arm"
    LAND_AGAIN = "land from here: press it down if it rises on trial"
    RESUME = "give back to the mode that was paused"
    HOLD = "pause the mode and hold, unless it does as much"
    WAIT = "hold for 5 s, then motors idle"
    REST = "motors idle"
    LAND = "land under control"
    ENTER = "enter the action's mode, unless the one that flies does as much"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    stances: tuple[Stance, ...]
    actions: tuple[Action, ...]
    does: Deed
    why: str


_NONE, _HOLD, _IDLE = (Action.NONE,), (Action.HOLD,), (Action.IDLE,)
_DOWN = (Action.RETURN, Action.LAND, Action.DESCEND)

RESPONSES = (
    Response(
        name="rests", does=Deed.NOTHING,
        stances=(Stance.RESTS, Stance.STRAYED), actions=(*_NONE, *_HOLD, Action.RETURN),
        why="no failsafe lifts a ship, and a pilot may be carrying it",
    ),
    Response(
        name="rests, to come down", does=Deed.GROUND,
        stances=(Stance.RESTS,), actions=(Action.LAND, Action.DESCEND, *_IDLE),
        why="it is down; a person looks before it flies again",
    ),
    Response(
        name="strayed", does=Deed.LAND_AGAIN,
        stances=(Stance.STRAYED,), actions=(Action.LAND, Action.DESCEND, *_IDLE),
        why="its feet do not hold it, whatever its height says",
    ),
    Response(
        name="nothing is wrong", does=Deed.RESUME,
        stances=(Stance.STANDS, Stance.STARTS, Stance.FLIES), actions=_NONE,
        why="what waited goes on from here",
    ),
    Response(
        name="stands, to hold", does=Deed.REST,
        stances=(Stance.STANDS,), actions=_HOLD,
        why="HOLD would drive it over the ground without end",
    ),
    Response(
        name="starts, to hold", does=Deed.WAIT,
        stances=(Stance.STARTS,), actions=_HOLD,
        why="a pilot's first heartbeat comes after the first command",
    ),
    Response(
        name="stands, to come down", does=Deed.REST,
        stances=(Stance.STANDS, Stance.STARTS), actions=_DOWN,
        why="no failsafe lifts a ship",
    ),
    Response(
        name="down", does=Deed.NOTHING,
        stances=(Stance.DOWN,), actions=(*_NONE, *_HOLD, *_DOWN),
        why="nothing else may release a held ship, or move one beside a person who looks",
    ),
    Response(
        name="driven on the ground", does=Deed.ENTER,
        stances=(Stance.STANDS, Stance.STARTS, Stance.DOWN), actions=_IDLE,
        why="what runs by itself must sleep there, too",
    ),
    Response(
        name="sees again", does=Deed.LAND,
        stances=(Stance.BLIND,), actions=(*_NONE, *_HOLD, Action.RETURN, Action.LAND),
        why="after a short dropout, land under control instead of finishing blind",
    ),
    Response(
        name="blind", does=Deed.ENTER,
        stances=(Stance.BLIND,), actions=(Action.DESCEND, *_IDLE),
        why="the descent goes on; only the last stage is worse",
    ),
    Response(
        name="flies, to hold", does=Deed.HOLD,
        stances=(Stance.FLIES,), actions=_HOLD,
        why="it stays under power; what comes down goes on",
    ),
    Response(
        name="flies, to come down", does=Deed.ENTER,
        stances=(Stance.FLIES,), actions=(*_DOWN, *_IDLE),
        why="a mode that does as much, or more, is not begun again",
    ),
)  # fmt: skip
RESPONSE_TO = {
    (stance, action): row for row in RESPONSES for stance in row.stances for action in row.actions
}
