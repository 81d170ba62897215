"""`ground photo list`, `get` and `watch`."""

import time
from pathlib import Path

import msgspec

from blimp.errors import LeaseError, LinkError, PhotoError
from blimp.photo import Photo
from ground_station.photos import PhotoFetcher
from ground_station.report import DONE, Outcome
from ground_station.session import Session

TASK = "photo"
LOOK_S = 5.0  # between two looks for new photographs


def list_photos(session: Session) -> int:
    """Print the photographs of the ship and return the exit status."""
    with session.photos(session.ship) as fetcher:
        here = {one.name: one for one in fetcher.files.photos()}
        waiting = {one.name: one for one in fetcher.waiting()}
        rows = []
        for name, photo in sorted((here | waiting).items(), reverse=True):
            path = fetcher.files.path(name)
            rows.append((photo, path, name in waiting))
    if session.report.as_json:
        found = [_as_data(photo, path, waits=waits) for photo, path, waits in rows]
        return session.report.outcome(
            Outcome(id=None, task=TASK, state="SUCCESS", result={"photos": found})
        )
    for photo, path, _ in rows:
        where = "waits on the ship" if path is None else str(path)
        session.report.data(f"{photo.name}  {_taken(photo)}  {photo.bytes / 1e6:6.2f} MB  {where}")
    return DONE


def get(session: Session, name: str | None) -> int:
    """Fetch one photograph, or all that wait, the oldest first; return the exit status."""
    with session.photos(session.ship) as fetcher:
        waiting = fetcher.waiting()
        wanted = [one for one in reversed(waiting) if name is None or one.name == name]
        if name is not None and not wanted:
            path = fetcher.files.path(name)
            if path is None:
                raise PhotoError(f"no photograph {name!r:.60}: `ground photo list` has them")
            found = fetcher.files.find(name)
            paths = [] if found is None else [(found, path)]
        else:
            paths = [(one, _fetched(session, fetcher, one)) for one in wanted]
    if session.report.as_json:
        result = {"photos": [_as_data(photo, path, waits=False) for photo, path in paths]}
        return session.report.outcome(Outcome(id=None, task=TASK, state="SUCCESS", result=result))
    for _, path in paths:
        session.report.data(str(path))
    return DONE


def watch(session: Session) -> int:
    """Fetch what is taken, as long as it is wanted; return the exit status."""
    said = ""
    with session.photos(session.ship) as fetcher:
        while True:
            try:
                for one in reversed(fetcher.waiting()):
                    path = _fetched(session, fetcher, one)
                    if session.report.as_json:
                        session.report.json(_as_data(one, path, waits=False))
                    else:
                        session.report.data(str(path))
                said = ""
            except (LinkError, LeaseError, PhotoError) as error:
                if str(error) != said:
                    said = str(error)
                    session.report.say(f"ground: {said}")
            except KeyboardInterrupt:
                return DONE
            try:
                session.clock.sleep_until(session.clock.now_s() + LOOK_S)
            except KeyboardInterrupt:
                return DONE


def _fetched(session: Session, fetcher: PhotoFetcher, photo: Photo) -> Path:
    last = -1

    def on_bytes(count: int) -> None:
        nonlocal last
        percent = 100 * count // photo.bytes
        if session.report.err_is_terminal and percent != last:
            last = percent
            session.report.progress(f"{photo.name}: {percent} %")

    path = fetcher.fetch(photo, on_bytes=on_bytes)
    session.report.end_line()
    if path is None:
        raise PhotoError(f"{photo.name}: given up")
    return path


def _as_data(photo: Photo, path: Path | None, *, waits: bool) -> dict[str, object]:
    about: dict[str, object] = msgspec.to_builtins(photo)
    del about["sent"], about["removed"]
    return about | {"file": None if path is None else str(path), "on_ship": waits}


def _taken(photo: Photo) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(photo.taken_s))
