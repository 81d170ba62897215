"""Mends the files of a broker that died, before it is started again.

    python -m blimp.service.stack.broker_files mend DIRECTORY SERVER [ARGUMENT...]
    python -m blimp.service.stack.broker_files empty DIRECTORY SERVER [ARGUMENT...]

A server refuses to start on a damaged file, and a ship in flight needs its broker more than it
needs the last messages. `mend` cuts the files at the first damage, as the server's own check
finds it (redis-check-aof is the server under another name). If nothing is left to cut at, or by
`empty`, the server starts with no data. What is removed is kept in DIRECTORY/damaged, the
newest time only. With arguments it becomes the server then; it never fails for a file.
"""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DATA, MANIFEST, DAMAGED = "appendonlydir", "appendonly.aof.manifest", "damaged"
CHECK_S = 60.0  # a check reads some 100 MB/s; a file is rewritten from twice its first size on
_ENTRY = re.compile(
    r"file (appendonly\.aof\.\d+\.(?:base|incr)\.(?:aof|rdb)) seq (\d+) type ([bih])(?: \w+ \d+)*"
)  # Redis 8.2 and newer give a file further numbers, and read one without: `startoffset 0`
_FILE = re.compile(r"appendonly\.aof\.(\d+)\.(base|incr)\.(?:aof|rdb)")
_WHOLE_TO = re.compile(rb"ok_up_to=(\d+)")


class Damaged(Exception):
    """The data cannot be mended; its text says why."""


class BrokerFiles:
    """The append-only files in `directory`. binary: the server that is to read them."""

    def __init__(self, directory: Path, *, binary: Path) -> None:
        self._directory = directory
        self._data = directory / DATA
        self._damaged = directory / DAMAGED
        self._binary = binary
        self.done: list[str] = []  # what was changed, for a person

    def mend(self) -> None:
        """Cut the files at the first damage. Raises OSError if even that cannot be done."""
        try:
            if not self._data.exists():
                return
            self._check_kind(self._data, stat.S_ISDIR)
            if any(self._data.iterdir()):
                self._mend_files()
        except (Damaged, OSError) as error:
            self.empty(str(error))

    def empty(self, why: str) -> None:
        """Put all data aside."""
        if os.path.lexists(self._data):
            self._keep(self._data, move=True)
            self.done.append(
                f"{why}: the broker starts empty, and what was queued is lost; its files are in "
                f"{self._damaged}"
            )

    def _mend_files(self) -> None:
        base, increments = self._read_manifest()
        if base is not None:
            self._check_base(base)
        for number, path in enumerate(increments):
            size = self._size(path)
            whole = self._whole_bytes(path) if size else 0
            if size is not None and whole == size:
                continue
            if size is None and base is None and not number:
                raise Damaged(f"{path} cannot be read")
            self._cut(path, whole, size)
            later = increments[number + 1 :]
            for one in later:  # they follow on what is cut
                if os.path.lexists(one):
                    self._keep(one, move=True)
            if later or size is None:
                kept = increments[: number + (size is not None)]
                self._write_manifest(base, kept)
            return

    def _cut(self, path: Path, whole: int, size: int | None) -> None:
        if size is None:
            if os.path.lexists(path):
                self._keep(path, move=True)
            self.done.append(f"{path} cannot be read: what it held is lost")
            return
        try:
            self._keep(path, move=False)
            kept = f"the whole file is in {self._damaged}"
        except OSError as error:  # a full disk, maybe: to start is worth more
            kept = f"not kept: {error.strerror}"
        os.truncate(path, whole)
        self.done.append(
            f"{path} was damaged at byte {whole} of {size}: cut there, and what was sent after it "
            f"is lost; {kept}"
        )

    def _read_manifest(self) -> tuple[Path | None, list[Path]]:
        """Return the base file, None for none, and the files that follow it, in order."""
        path = self._data / MANIFEST
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines = path.read_text(encoding="ascii").splitlines()
            entries = [_ENTRY.fullmatch(line) for line in lines]
            if lines and all(entries):
                named = [(m[3], self._data / m[1]) for m in entries if m is not None]
                bases = [one for kind, one in named if kind == "b"]
                if len(bases) <= 1:
                    return (bases[0] if bases else None), [
                        one for kind, one in named if kind == "i"
                    ]
        return self._guess_manifest()

    def _guess_manifest(self) -> tuple[Path | None, list[Path]]:
        """Rewrite a manifest that is damaged, if the files there can be in one order only."""
        found: dict[str, list[tuple[int, Path]]] = {"base": [], "incr": []}
        for path in self._data.iterdir():
            if (match := _FILE.fullmatch(path.name)) is not None:
                found[match[2]].append((int(match[1]), path))
        increments = sorted(found["incr"])
        numbers = [number for number, _ in increments]
        is_gapless = not numbers or numbers[-1] - numbers[0] == len(numbers) - 1
        # Two of the one, or a gap: a rewrite was under way, and some of them count no more.
        if len(found["base"]) > 1 or not is_gapless:
            raise Damaged(f"{self._data / MANIFEST} is damaged")
        if not found["base"] and not increments:
            raise Damaged(f"{self._data} has no data")
        base = found["base"][0][1] if found["base"] else None
        paths = [path for _, path in increments]
        if os.path.lexists(self._data / MANIFEST):
            self._keep(self._data / MANIFEST, move=True)
        self._write_manifest(base, paths)
        self.done.append(f"{self._data / MANIFEST} was damaged: written again from the files there")
        return base, paths

    def _write_manifest(self, base: Path | None, increments: list[Path]) -> None:
        lines = []
        for path in (base, *increments):
            if path is not None:
                match = _FILE.fullmatch(path.name)
                assert match is not None
                lines.append(f"file {path.name} seq {match[1]} type {match[2][0]}\n")
        temporary = self._data / "mended.manifest"
        temporary.write_text("".join(lines), encoding="ascii")
        temporary.replace(self._data / MANIFEST)

    def _check_base(self, path: Path) -> None:
        size = self._size(path)
        if size is None:
            raise Damaged(f"{path} cannot be read")
        tool = "redis-check-rdb" if path.suffix == ".rdb" else "redis-check-aof"
        said = self._run(tool, path)
        if b"RDB ERROR DETECTED" in said or _WHOLE_TO.search(said) is not None:
            raise Damaged(f"{path} is damaged")

    def _whole_bytes(self, path: Path) -> int:
        """Return the length up to which commands and transactions are whole."""
        match = _WHOLE_TO.search(self._run("redis-check-aof", path))
        return path.stat().st_size if match is None else int(match[1])

    def _run(self, tool: str, path: Path) -> bytes:
        """Run the server under the name `tool`, as which it checks a file; return what it says.

        What is not said to be damaged is not: a binary that is a script loses the name.
        """
        try:
            return subprocess.run(
                [tool, str(path)],
                executable=str(self._binary),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=CHECK_S,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired:
            return b""  # the server may be able to read it

    @staticmethod
    def _size(path: Path) -> int | None:
        """Return the size of a file that can be read and written, None for anything else."""
        try:
            BrokerFiles._check_kind(path, stat.S_ISREG)
        except (Damaged, OSError):
            return None
        return path.stat().st_size

    @staticmethod
    def _check_kind(path: Path, is_kind: Callable[[int], bool]) -> None:
        if not is_kind(path.lstat().st_mode):
            raise Damaged(f"{path} is of another kind")
        if not os.access(path, os.R_OK | os.W_OK):
            raise Damaged(f"{path}: permission denied")

    def _keep(self, path: Path, *, move: bool) -> None:
        """Put `path` into the directory of damaged files, which holds one time's."""
        if not self.done and self._damaged.exists():
            shutil.rmtree(self._damaged, ignore_errors=True)
        self._damaged.mkdir(mode=0o700, exist_ok=True)
        target = self._damaged / path.name
        if move:
            path.rename(target)
        else:
            shutil.copyfile(path, target)


def main(arguments: list[str]) -> None:
    what, directory, *server = arguments
    files = BrokerFiles(Path(directory), binary=Path(server[0]))
    try:
        files.mend() if what == "mend" else files.empty("the server cannot read its data")
    except OSError as error:
        files.done.append(f"{directory} cannot be mended: {error}")
    for line in files.done:
        with contextlib.suppress(OSError):  # it may be a file on a full disk, or closed
            print(f"blimp: broker: {line}", file=sys.stderr, flush=True)
    if len(server) > 1:
        os.execv(server[0], server)


if __name__ == "__main__":
    main(sys.argv[1:])
