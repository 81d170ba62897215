"""One log: an MCAP file of a session, in chunks that survive a cut.

Whatever is in a chunk that was flushed is on the disk; a cut loses what came after. Needs the
`mcap` package; see docs/decisions/0041-flight-log.md for why not `foxglove-sdk`.
"""

import contextlib
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from blimp.closing import Closing
from blimp.distribution import build
from blimp.errors import LogError
from blimp.link.paths import is_of_group
from blimp.recording.container import CompressionType, Writer
from blimp.recording.tape import Session
from blimp.recording.topics import NS, Message, Translator, schemas
from blimp.system import HAS_OWNERS, OPEN_FLAGS, fcntl, sync_data

FORMAT = "1"
LIBRARY = METADATA = "blimp"
NEXT = "blimp.next"  # metadata of a log that another one continues
AIRFRAME, PLANT = "airframe.json", "plant.json"
CHUNK_BYTES = 256 * 1024  # before compression


class LogFile(Closing):
    """Writes messages of one session to a new file at `path`, for this user alone.

    Raises LogError if the file is there, or cannot be written. The file is locked while it is
    open: who keeps a directory in bounds leaves it. metadata: of the log that it recovers. before:
    the name of the log that it continues.
    """

    def __init__(
        self,
        path: Path,
        session: Session,
        metadata: dict[str, str] | None = None,
        *,
        before: str = "",
    ) -> None:
        self.path, self.before = path, before
        self._output = _Output(path)
        self._writer: Any = Writer(cast(IO[bytes], self._output), CHUNK_BYTES, CompressionType.ZSTD)
        self._channels: dict[str, int] = {}
        try:
            facts = {"before": before} if before else {}
            self._begin(session, (metadata or metadata_of(session)) | facts)
        except BaseException:
            self._output.close()
            raise

    def _begin(self, session: Session, metadata: dict[str, str]) -> None:
        writer = self._writer
        writer.start(profile="", library=f"{LIBRARY} {build().version}; mcap {version('mcap')}")
        writer.add_metadata(METADATA, metadata)
        now_ns = int(session.epoch_s * NS)
        parts = {AIRFRAME: session.airframe, PLANT: session.plant}
        for name, part in parts.items():
            if part is not None:
                data = msgspec.json.encode(part)
                writer.add_attachment(now_ns, now_ns, name, "application/json", data)
        for topic, (name, schema) in schemas(session).items():
            number = writer.register_schema(name, "jsonschema", msgspec.json.encode(schema))
            self._channels[topic] = writer.register_channel(topic, "json", number)
        self._output.sync()

    @property
    def size(self) -> int:
        """Bytes in the file; what is in the chunk that is being filled comes on top."""
        return self._output.tell()

    def add(self, message: Message) -> None:
        """Add a message to the chunk that is being filled. Raises LogError as `flush`."""
        self._writer.add_message(
            self._channels[message.topic], message.time_ns, message.data, message.time_ns
        )

    def flush(self) -> None:
        """Put all there is on the disk, as a chunk. Raises LogError; the file then ends before."""
        self._writer.flush()
        self._output.sync()

    def continue_in(self, name: str) -> None:
        """Name the log that continues this one. Raises LogError as `flush`."""
        self._writer.add_metadata(NEXT, {"log": name})

    def close(self) -> None:
        """Write the index and close. Idempotent. Raises LogError; all whole chunks are there."""
        if self._output.is_open:
            with contextlib.closing(self._output):
                self._writer.finish()
                self._output.sync()

    def abandon(self) -> None:
        """Close without an index, where the disk takes no more."""
        self._output.close()


class SessionLog(Closing):
    """The log of one session in one process: what its tape writes is in the file at once."""

    def __init__(self, path: Path, session: Session) -> None:
        self._file = LogFile(path, session)
        self._translator = Translator(session)

    def take(self, kind: int, payload: bytes) -> bool:
        """Take a record of the tape; its `write`. Raises LogError."""
        for message in self._translator.messages(kind, payload):
            self._file.add(message)
        return True

    def close(self) -> None:
        self._file.close()


def metadata_of(session: Session) -> dict[str, str]:
    """Return what stands in a log beside its messages; every value is text."""
    facts = {
        "format": FORMAT,
        "session": msgspec.json.encode(
            msgspec.structs.replace(session, airframe={}, plant=None)
        ).decode(),
        "vehicle": session.vehicle,
        "airframe": str(session.airframe.get("name", "")),
        "simulated": "true" if session.simulated else "false",
        "boot_id": session.boot_id,
        "rate_hz": f"{session.rate_hz:g}",
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "blimp": build().version,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    if session.seed is not None:
        facts["seed"] = str(session.seed)
    if session.wind_mps is not None:
        facts["wind_mps"] = f"{session.wind_mps:g}"
    return facts


class _Output:
    """The file below the writer: unbuffered, and cut back to the last `sync` if a write fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole = self._position = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
        try:
            self._descriptor = os.open(path, flags, 0o600)
            if HAS_OWNERS and is_of_group(path.parent):
                os.fchmod(self._descriptor, 0o640)  # whatever the umask: its group reads it
        except OSError as error:
            raise LogError(f"log {path}: {error.strerror}") from error
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def write(self, data: bytes) -> int:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._whole)
            raise LogError(f"log {self._path}: {error.strerror}") from error
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing is buffered."""

    def sync(self) -> None:
        try:
            sync_data(self._descriptor)
        except OSError as error:
            raise LogError(f"log {self._path}: {error.strerror}") from error
        self._whole = self._position

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
