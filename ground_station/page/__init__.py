"""The page: a ship seen and commanded from a browser, offline and without a build step."""

# The stages of a command's way that an action of chaos takes down, until the ship is back.
DOWN = {
    "kill-worker": ("worker",),
    "kill-flight": ("flight", "motor"),
    "stop-broker": ("queue",),
    "cut-link": ("queue",),
}
PORT = 8421  # unless another is asked for
