"""Pictures from the ship to who looks at them: asked for one by one, so that none waits in line.

The ground adds a wish to one stream of the broker, the ship answers all new wishes with its newest
picture in another stream, which keeps one entry. On whichever side of the link the broker is, at
most one picture is under way, and the reader leaves the link to commands for three times as long as
that one took. On a link that takes seconds for one it stops, and looks again later.

With a key each picture is signed for its ship: what is said about it has its digest, and the random
numbers of the wishes that it answers. So a broker cannot show an old one as live: the reader takes
what answers its own wish, and by its own clock no picture is older than its age then and that wish.
"""

import hashlib
import math
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError, LinkError, NotGenuine
from blimp.photo import JPEG
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.urls import link_errors

PICTURE_PREFIX, WISH_PREFIX = "blimp:picture:", "blimp:wish:"
KEPT_S = 10  # then nothing of it is on a shared broker
PERIOD_S = 0.2  # five a second: to see what the ship sees, not to fly by
SHARE = 0.25  # of the link's time that pictures may take
THIN_S = 2.0  # 8 KiB in it are 33 kbit/s: a command and its answer would notice
PAUSE_S = 10.0  # until a link that was too thin is tried again
TIMEOUT_S = 4.0  # of an answer of the broker: a link slower than this carries no pictures
WAIT_S = 1.0  # for a picture, or a wish
NEW_S = 0.5  # for a frame that the reader has not seen
RETRY_S = 2.0
MAX_BYTES = 64 * 1024
MOST_WISHES = 8  # that one picture answers: as many stations look, or more than do
NONCE_BYTES = 8  # of a wish

Take = Callable[[int, float], dict[str, Any]]


class Picture(NamedTuple):
    """about: of `blimp/camera/picture.py`. age_s: since its exposure. took_s: from wish to here."""

    about: dict[str, Any]
    jpeg: bytes
    age_s: float
    took_s: float


class PictureSender(Closing):
    """The ship's end, in a thread of its own: a wish, a picture, never two at once.

    take: returns a picture other than that of a sequence number, as Picturer's.
    """

    def __init__(
        self, url: str, vehicle: str, *, take: Take, signer: Signer | None, clock: Clock
    ) -> None:
        self._redis: Any = open_redis(url, timeout_s=TIMEOUT_S, retries=0)
        self._url, self._vehicle, self._take = url, vehicle, take
        self._signer, self._clock = signer, clock
        self.sent = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="picture", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = "$"
        while not self._ended.is_set():
            try:
                with link_errors(self._url):
                    last = self._serve(last)
            except (BlimpError, ValueError):
                last = "$"  # what was wished for meanwhile is old
                self._ended.wait(RETRY_S)

    def _serve(self, last: str) -> str:
        """Answer the next wish, if one comes in time; return the id of the last one."""
        wish = WISH_PREFIX + self._vehicle
        news = self._redis.xread({wish: last}, count=MOST_WISHES, block=round(1e3 * WAIT_S))
        if not news:
            return last
        raw_id, fields = news[0][1][-1]
        began_s = self._clock.now_s()
        nonces = [one.get(b"nonce", b"")[:NONCE_BYTES].hex() for _, one in news[0][1]]
        self._send(int(fields.get(b"after", b"-1")), nonces)
        self._ended.wait(max(0.0, PERIOD_S - (self._clock.now_s() - began_s)))
        return str(raw_id.decode())

    def _send(self, after: int, nonces: list[str]) -> None:
        try:
            found = self._take(after, NEW_S)
        except BlimpError:
            return  # without a camera there is no picture; the wish is repeated
        about, jpeg = found["about"], found["jpeg"]
        about["age_s"] = self._clock.now_s() - about["t_s"]
        about["sha256"], about["wishes"] = hashlib.sha256(jpeg).hexdigest(), nonces
        words = msgspec.json.encode(about)
        if self._signer is not None:
            words = self._signer.append_to(words, place=_place(self._vehicle))
        key = PICTURE_PREFIX + self._vehicle
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.xadd(key, {"about": words, "jpeg": jpeg}, maxlen=1, approximate=False)
            pipe.expire(key, KEPT_S)
            pipe.execute()
        self.sent += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=WAIT_S + TIMEOUT_S)
        self._redis.close()


class PictureReader(Closing):
    """The ground's end: `next` as often as a picture is wanted, from one thread.

    wait_s: until the next wish, by what the last picture took. words: why there is none, or "".
    """

    def __init__(self, url: str, vehicle: str, *, signer: Signer | None, clock: Clock) -> None:
        self._redis: Any = open_redis(url, timeout_s=TIMEOUT_S, retries=0)
        self._url, self._vehicle, self._signer, self._clock = url, vehicle, signer, clock
        self._last_id: str | None = None
        self.wait_s = 0.0
        self.words = ""

    def next(self, after: int) -> Picture | None:
        """Wish for a picture other than that of `after`; None if none comes in WAIT_S."""
        began_s = self._clock.now_s()
        try:
            with link_errors(self._url):
                found = self._ask(after)
        except LinkError as error:
            self.words, self.wait_s = str(error), RETRY_S
            return None
        took_s = self._clock.now_s() - began_s
        if found is None:
            self.words, self.wait_s = "no picture: its camera does not answer", RETRY_S
            return None
        self.words, self.wait_s = "", max(PERIOD_S, (1.0 / SHARE - 1.0) * took_s)
        if took_s > THIN_S:
            self.words = f"the link is too thin for pictures: one took {took_s:.1f} s"
            self.wait_s = PAUSE_S
        about, jpeg, waited_s = found
        return Picture(about, jpeg, about["age_s"] + waited_s, took_s)

    def _ask(self, after: int) -> tuple[dict[str, Any], bytes, float] | None:
        key, wish = PICTURE_PREFIX + self._vehicle, WISH_PREFIX + self._vehicle
        if self._last_id is None:
            newest = self._redis.xrevrange(key, count=1)
            self._last_id = newest[0][0].decode() if newest else "0-0"
        nonce, began_s = secrets.token_bytes(NONCE_BYTES), self._clock.now_s()
        wishes = {"after": after, "nonce": nonce}
        old = 0
        while (left_s := began_s + WAIT_S - self._clock.now_s()) > 0.0 and old < MOST_WISHES:
            with self._redis.pipeline(transaction=False) as pipe:
                if not old:
                    pipe.xadd(wish, wishes, maxlen=MOST_WISHES, approximate=False)
                    pipe.expire(wish, KEPT_S)
                pipe.xread({key: self._last_id}, count=1, block=max(1, round(1e3 * left_s)))
                pipe.time()
                *_, news, (seconds, microseconds) = pipe.execute()
            if not news:
                break
            raw_id, fields = news[0][1][-1]
            self._last_id = raw_id.decode()
            about, jpeg = self._read(fields)
            if self._signer is None:  # then what the broker says is all that is known
                sent_s = int(raw_id.partition(b"-")[0]) / 1e3
                return about, jpeg, max(0.0, seconds + 1e-6 * microseconds - sent_s)
            if nonce.hex() in about["wishes"]:
                return about, jpeg, self._clock.now_s() - began_s
            old += 1  # an answer to somebody else, or an old one that is shown again
        if old:
            raise LinkError(f"picture of {self._vehicle!r}: it answers no wish of this station's")
        return None

    def _read(self, fields: dict[bytes, bytes]) -> tuple[dict[str, Any], bytes]:
        """Return what a ship sent; raise LinkError for what is none, or not signed by our key."""
        try:
            words, jpeg = fields[b"about"], fields[b"jpeg"]
            if self._signer is not None:
                self._signer.check_appended(words, place=_place(self._vehicle))
            about = msgspec.json.decode(words, type=dict[str, Any])
            if len(jpeg) > MAX_BYTES or not jpeg.startswith(JPEG):
                raise ValueError("no JPEG")
            if hashlib.sha256(jpeg).hexdigest() != about["sha256"]:
                raise ValueError("another picture than it says")
            if not isinstance(about["sequence"], int) or not math.isfinite(about["age_s"]):
                raise ValueError("no sequence, or no age")
            if self._signer is not None and not isinstance(about["wishes"], list):
                raise ValueError("no wishes")
        except (NotGenuine, KeyError, ValueError, TypeError, RecursionError) as error:
            raise LinkError(f"picture of {self._vehicle!r}: {error}") from error
        return about, jpeg

    def close(self) -> None:
        self._redis.close()


def _place(vehicle: str) -> str:
    """Return what the signature of a picture is for."""
    return f"picture of {vehicle}"
