"""The page: a ship seen and commanded from a browser, offline and without a build step."""

from typing import Literal

# The stages of a command's way that an action of chaos takes down, until it is over.
DOWN = {
    "kill-worker": ("worker",),
    "kill-flight": ("flight", "motor"),
    "stop-broker": ("queue",),
    "cut-link": ("queue",),
}
# The faults that a room may vote for: each ends by itself, and needs neither amount nor device.
Votable = Literal["kill-worker", "kill-flight", "stop-broker", "cut-link", "blind-position"]
PORT = 8421  # unless another is asked for
