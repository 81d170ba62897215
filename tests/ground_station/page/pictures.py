"""Pictures of the page for the documents, taken while the show runs: `make pictures`."""

import io
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

FRAME_S = 1.8  # between two frames of the recording
RECORDING_S = 20.0
WIDTH_PX = 640
COLOURS = 30
# Of static/page.css: a red button is small, and would lose its colour to the many dark ones.
SIGNALS = (
    (240, 228, 66), (212, 53, 28), (230, 159, 0), (43, 194, 151), (86, 180, 233), (58, 124, 165),
    (255, 138, 92), (204, 121, 167), (255, 255, 255), (140, 152, 164),
)  # fmt: skip
STORIES = {"worker died": "page", "the broker stops": "lost"}  # a caption's words: a picture's name


class Album:
    """The frames of one show. `save` writes show.gif, and a picture for each of STORIES."""

    def __init__(self, operator: Page, viewer: Page) -> None:
        self._operator, self._viewer = operator, viewer
        self._frames: list[bytes] = []
        self._stories: dict[str, bytes] = {}
        self._next_s = time.monotonic()

    def take(self) -> None:
        """Take the next frame as soon as it is due."""
        self._operator.wait_for_timeout(max(0.0, 1e3 * (self._next_s - time.monotonic())))
        self._next_s = max(self._next_s + FRAME_S, time.monotonic())
        self._frames.append(self._operator.screenshot())
        caption = self._operator.get_by_test_id("caption").inner_text()
        for words, name in STORIES.items():
            if words in caption:  # the last picture of it
                self._stories[name] = self._frames[-1]
                self._stories[f"{name}-phone"] = self._viewer.screenshot()

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, png in {**self._stories, "end": self._frames[-1]}.items():
            picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(128)
            picture.save(directory / f"{name}.png", optimize=True)
        small = [_small(png) for png in self._frames]
        # One palette for all: what does not change is then the same from frame to frame.
        height_px = small[0].height
        sample = Image.new("RGB", (WIDTH_PX, 8 * height_px))
        for number in range(8):
            sample.paste(small[number * (len(small) - 1) // 7], (0, number * height_px))
        colours = sample.quantize(COLOURS).getpalette() or []
        palette = Image.new("P", (1, 1))
        palette.putpalette([*colours[: 3 * COLOURS], *(part for one in SIGNALS for part in one)])
        drawn = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in small]
        drawn[0].save(
            directory / "show.gif", save_all=True, append_images=drawn[1:],
            duration=round(1e3 * RECORDING_S / len(drawn)), loop=0, optimize=True,
        )  # fmt: skip


def _small(png: bytes) -> Image.Image:
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    height_px = round(WIDTH_PX * whole.height / whole.width)
    return whole.resize((WIDTH_PX, height_px), Image.Resampling.LANCZOS)
