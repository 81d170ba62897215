"""`ground photo`: take, list, get and stop, as a person and as a program."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.camera.photograph import Photographer
from blimp.camera.store import PhotoStore
from blimp.link.camera_control import ControlServer
from ground_station import photo_command
from tests.camera.test_store import Drawn
from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import Ground


@pytest.fixture
def ground(
    twin: FlyingShip,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ground:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ground = Ground(capsys)
    ground.options = ["--broker", twin.broker.url, "--vehicle", twin.vehicle]
    return ground


@pytest.fixture
def store(twin: FlyingShip) -> Iterator[PhotoStore]:
    """A ship with a camera."""
    store = PhotoStore(twin.runtime / "photos", free_bytes=0)
    store.open()
    photographer = Photographer(source=Drawn(), store=store)
    with ControlServer(twin.runtime / "camera-control.sock", {"photo": photographer.answer}):
        yield store


def test_a_ship_without_a_camera_refuses(ground: Ground) -> None:
    assert ground("photo") == 5
    assert "no camera: `blimp camera` does not run on this ship" in ground.err
    assert ground("photo", "list") == 0
    assert ground.out == ""


def test_taken_listed_and_fetched(
    ground: Ground, twin: FlyingShip, store: PhotoStore, tmp_path: Path
) -> None:
    status, taken = ground.json("photo")
    assert (status, taken["state"]) == (0, "SUCCESS")
    name = taken["result"]["name"]
    assert ground("photo", "list") == 0
    assert ground.out.startswith(name)
    assert ground.out.endswith("waits on the ship\n")
    status, listed = ground.json("photo", "list")
    (one,) = listed["result"]["photos"]
    assert (one["name"], one["file"], one["on_ship"]) == (name, None, True)
    assert ground("photo", "get", name) == 0
    path = Path(ground.out.strip())
    assert path == tmp_path / "blimp" / "photos" / twin.vehicle / f"{name}.jpg"
    assert path.stat().st_size == one["bytes"]
    assert store.photos(1) == []
    assert ground("photo", "get", name) == 0  # it is here
    assert ground.out.strip() == str(path)
    assert ground("photo", "get") == 0
    assert ground.out == ""
    status, missing = ground.json("photo", "get", "20270115T080000000Z-0123456789abcdef")
    assert status != 0
    assert "ground photo list" in missing["reason"]
    assert ground("photo", "get", "../../etc/passwd") != 0
    assert "is no photograph's name" in ground.err


def test_at_intervals_and_what_cannot_be(ground: Ground, store: PhotoStore) -> None:
    assert ground("photo", "--count", "3") == 2
    assert "count above 1 needs every_s" in ground.err
    assert ground("photo", "--every-s", "0.5") == 2
    assert ground("photo", "--every-s", "3600") == 0
    assert ground("photo", "stop") == 0
    _, plan = ground.json("--dry-run", "photo", "--every-s", "5", "--count", "20")
    assert plan["result"]["arguments"] == {"every_s": 5.0, "count": 20}


def test_watch_fetches_what_is_taken_until_it_is_stopped(
    ground: Ground, store: PhotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground("photo")
    (photo,) = store.photos(1)
    fetched = threading.Event()
    really = photo_command._fetched

    def fetch(*given: object) -> Path:
        path = really(*given)  # type: ignore[arg-type]
        fetched.set()
        return path

    def interrupt(*_: object) -> None:
        if fetched.is_set():
            raise KeyboardInterrupt

    monkeypatch.setattr(photo_command, "_fetched", fetch)
    monkeypatch.setattr("blimp.clock.SystemClock.sleep_until", interrupt)
    assert ground("photo", "watch") == 0
    assert ground.out.strip().endswith(f"{photo.name}.jpg")
    assert store.photos(1) == []
