"""Pictures of the page for the documents, taken while the show runs."""

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
# A caption's words: the names of the operator's picture, the phone's, and the queue room's.
STORIES = {"The worker was killed": ("page", "phone", "queue")}
# Those that README and docs show; `make show` takes them all.
NAMES = (
    "page.png", "show.gif", "chaos.png", "lost.png", "queue.png", "replay.png", "phone.png",
    "end.png", "end-phone.png",
)  # fmt: skip
# Of the ship's own page, by its width, taken by its test.
PICTURE_OF = {390: "phone-flight.png", 844: "phone-sideways.png"}


class Album:
    """The frames of one show. `save` writes show.gif, and the pictures of STORIES and the end."""

    def __init__(self, operator: Page, *others: Page) -> None:
        self._operator, self._others = operator, others
        self._frames: list[bytes] = []
        self._stories: dict[str, bytes] = {}
        self._next_s = time.monotonic()

    def take(self) -> None:
        """Take the next frame once it is due."""
        self._operator.wait_for_timeout(max(0.0, 1e3 * (self._next_s - time.monotonic())))
        self._next_s = max(self._next_s + FRAME_S, time.monotonic())
        caption = self._operator.get_by_test_id("caption").inner_text()
        self._frames.append(self._operator.screenshot())
        for words, (name, *names) in STORIES.items():
            if words in caption:  # the last picture of each
                self._stories[name] = self._frames[-1]
                for other, page in zip(names, self._others, strict=False):
                    self._stories[other] = page.screenshot()

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        end = {"end": self._frames[-1], "end-phone": self._others[0].screenshot()}
        for name, png in {**self._stories, **end}.items():
            save(png, directory / f"{name}.png")
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


def save(png: bytes, path: Path) -> None:
    """Write a picture with few colours; the page has not many more."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(160, kmeans=2)
    picture.save(path, optimize=True)


def _small(png: bytes) -> Image.Image:
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    height_px = round(WIDTH_PX * whole.height / whole.width)
    return whole.resize((WIDTH_PX, height_px), Image.Resampling.LANCZOS)
