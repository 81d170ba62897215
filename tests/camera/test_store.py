"""Photographs on disk: whole or not there, once a command, bounded."""

import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from blimp.camera.frame import Frame
from blimp.camera.photograph import Photographer
from blimp.camera.store import PhotoStore, record_of
from blimp.errors import PhotoError
from blimp.photo import Photo, PhotoRequest


class Drawn:
    """A camera whose pictures are noise: each differs, and JPEG cannot make much less of them."""

    def __init__(self, size: tuple[int, int] = (320, 240)) -> None:
        self.size = size
        self.taken = 0
        self._chance = np.random.default_rng(1)

    def next_frame(self, timeout_s: float) -> Frame | None:
        return self.still()

    def still(self) -> Frame:
        self.taken += 1
        pixels = self._chance.integers(0, 255, (self.size[1], self.size[0], 3), dtype=np.uint8)
        return Frame(sequence=self.taken, t_s=100.25, exposure_s=0.008, gain=2.0, pixels=pixels)

    def close(self) -> None:
        pass


def request(id: str, **more: Any) -> PhotoRequest:
    return PhotoRequest(id=id, ship="twin", unix_s=1_800_000_000.0, asked_s=100.0, **more)


@pytest.fixture
def camera() -> Drawn:
    return Drawn()


@pytest.fixture
def store(tmp_path: Path) -> PhotoStore:
    made = PhotoStore(tmp_path / "photos", free_bytes=0)
    made.open()
    return made


@pytest.fixture
def photographer(store: PhotoStore, camera: Drawn) -> Photographer:
    return Photographer(source=camera, store=store)


def test_a_photograph_says_when_where_and_how_it_was_taken(
    photographer: Photographer, store: PhotoStore
) -> None:
    place = (-47.5, 8.25, 431.5)
    taken = photographer.take(
        request("c-1", place=place, position_ned_m=(1.0, 2.0, -3.0), attitude_rad=(0.0, 0.1, 0.2))
    )
    assert store.photos(10) == [taken]
    assert taken.taken_s == 1_800_000_000.25
    assert taken.name.startswith("20270115T080000250Z-")
    data = store.read(taken.name, 0, taken.bytes, preview=False)
    with Image.open(io.BytesIO(data)) as image:
        exif = image.getexif()
        inner, gps = exif.get_ifd(0x8769), exif.get_ifd(0x8825)
        assert image.size == (taken.width, taken.height) == (320, 240)
    assert (inner[0x9003], inner[0x9011], inner[0x9291]) == ("2027:01:15 08:00:00", "+00:00", "250")
    assert float(inner[0x829A]) == pytest.approx(0.008)
    assert (gps[1], gps[3]) == ("S", "E")
    assert [float(part) for part in gps[2]] == [47.0, 30.0, 0.0]
    assert float(gps[6]) == pytest.approx(431.5)
    comment = json.loads(inner[0x9286][8:])
    assert (comment["command"], comment["ship"]) == ("c-1", "twin")
    assert (comment["position_ned_m"], comment["attitude_rad"]) == ([1, 2, -3], [0, 0.1, 0.2])
    preview = store.read(taken.name, 0, taken.preview_bytes, preview=True)
    with Image.open(io.BytesIO(preview)) as image:
        assert max(image.size) <= 320


def test_photographs_of_one_second_are_listed_in_the_order_in_which_they_were_taken(
    store: PhotoStore,
) -> None:
    jpeg = b"\xff\xd8\xff"
    for number in range(9):
        taken_s = 1_800_000_000.0 + number / 9
        photo = record_of(id=f"{number}", taken_s=taken_s, size=(1, 1), jpeg=jpeg, preview=jpeg)
        store.add(photo, jpeg=jpeg, preview=jpeg)
    times_s = [one.taken_s for one in store.photos(10)]
    assert times_s == sorted(times_s, reverse=True)
    assert len(times_s) == 9
    middle = store.photos(10)[4]
    assert [one.taken_s for one in store.photos(10, before=middle.name)] == times_s[5:]


def test_a_command_that_comes_again_gets_the_first_photograph(
    photographer: Photographer, store: PhotoStore, camera: Drawn
) -> None:
    first = photographer.take(request("c-1"))
    assert photographer.take(request("c-1")) == first
    store.confirm(first.name, first.sha256)
    again = photographer.take(request("c-1"))
    assert (again.sent, again.sha256, camera.taken) == (True, first.sha256, 1)
    assert store.photos(10) == []


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", "\0", "", ".hidden", "x" * 500])
def test_no_command_id_is_a_path(photographer: Photographer, store: PhotoStore, id: str) -> None:
    taken = photographer.take(request(id))
    assert {one.name.partition(".")[0] for one in store.directory.iterdir()} == {taken.name}
    assert store.find(id) == taken


@pytest.mark.parametrize(
    "name", ["../x", "20270115T080000000Z-0123456789abcdef/..", 7, None, "a" * 99]
)
def test_no_other_file_is_read(store: PhotoStore, name: object) -> None:
    with pytest.raises(PhotoError, match="is no photograph's name"):
        store.read(name, 0, 100, preview=False)
    with pytest.raises(PhotoError, match="is no photograph's name"):
        store.confirm(name, "0" * 64)


class Cut(Exception):
    """The power ends."""


def test_a_power_cut_between_any_two_steps_leaves_no_half_photograph(
    photographer: Photographer, store: PhotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes the disk is the last one, once; no handler runs after it."""
    kept = photographer.take(request("kept"))
    calls = ("replace", "fsync", "fchmod", "unlink", "open")
    done = {name: getattr(os, name) for name in calls}
    for last in range(1, 100):
        count = 0

        def step(name: str, *given: Any, last: int = last, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count >= last:  # nor does what would clean up
                raise Cut
            return done[name](*given, **more)

        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, lambda *g, _n=name, **m: step(_n, *g, **m))
            try:
                photographer.take(request(f"c-{last}"))
            except Cut:
                is_over = False
            else:
                is_over = True
        store.open()
        found = store.photos(1000)
        assert kept in found
        for one in found:
            assert len(store.read(one.name, 0, one.bytes, preview=False)) == one.bytes
        files = {each.name.partition(".")[0] for each in store.directory.iterdir()}
        assert files == {one.name for one in found}, "drafts or pictures without a record"
        if is_over:
            break
    else:
        pytest.fail("it never ends")
    assert last > 8


def test_the_oldest_make_room(store: PhotoStore, camera: Drawn) -> None:
    photographer = Photographer(source=camera, store=store)
    times = [1_800_000_000.0 + 10.0 * k for k in range(6)]
    taken = [
        photographer.take(msgspec.structs.replace(request(f"c-{k}"), unix_s=t))
        for k, t in enumerate(times)
    ]
    store.max_bytes = 4 * (taken[0].bytes + taken[0].preview_bytes)
    newest = photographer.take(msgspec.structs.replace(request("new"), unix_s=times[-1] + 10.0))
    here = store.photos(10)
    assert here[0] == newest
    assert [one.name for one in here[1:]] == [one.name for one in reversed(taken[-len(here) + 1 :])]
    gone = store.find("c-0")
    assert gone is not None
    assert gone.removed
    assert not gone.sent


def test_a_full_disk_is_a_refusal_that_names_it(
    photographer: Photographer, store: PhotoStore
) -> None:
    store.free_bytes = 10**18
    with pytest.raises(PhotoError, match=r"no room for a photograph of .* MB in .*photos"):
        photographer.take(request("c-1"))
    assert list(store.directory.iterdir()) == []
    store.free_bytes, store.max_bytes = 0, 100
    with pytest.raises(PhotoError, match="no room"):
        photographer.take(request("c-1"))


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    photographer: Photographer, store: PhotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PhotoError, match="No space left on device"):
        photographer.take(request("c-1"))
    monkeypatch.undo()
    store.open()
    assert list(store.directory.iterdir()) == []


def test_only_its_hash_deletes_a_photograph(photographer: Photographer, store: PhotoStore) -> None:
    taken = photographer.take(request("c-1"))
    with pytest.raises(PhotoError, match="no photograph with the hash"):
        store.confirm(taken.name, "0" * 64)
    assert store.photos(1) == [taken]
    for _ in range(2):
        store.confirm(taken.name, taken.sha256)
    assert store.photos(1) == []
    with pytest.raises(PhotoError, match="No such file"):
        store.read(taken.name, 0, 100, preview=False)


def test_a_damaged_record_hides_its_photograph_and_no_other(
    photographer: Photographer, store: PhotoStore
) -> None:
    one, two = photographer.take(request("c-1")), photographer.take(request("c-2"))
    (store.directory / f"{one.name}.json").write_bytes(b"\0" * 40)
    found: list[Photo] = store.photos(10)
    assert found == [two]
