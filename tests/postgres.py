"""A real PostgreSQL of the tests' own, that ends with them, kill -9 included."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psycopg

from blimp.errors import BlimpError
from blimp.processes import Child
from tests.needs import not_run

HOW = "on Debian: apt-get install postgresql (it need not be running)"
NOBODY = ("postgres", "nobody")  # the server refuses to run as root


def find_postgres() -> Path:
    """Return the folder of the server's programs. For the head of a test module or a fixture.

    Where there is none it is skipped, and says how to get one; under CI it fails.
    """
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3])
    )
    on_path = shutil.which("postgres")
    found = installed[-1] if installed else Path(on_path) if on_path else None
    if found is not None and (found.parent / "initdb").exists():
        return found.parent
    raise not_run(f"no PostgreSQL here; {HOW}", module=True)


class Postgres:
    """One cluster on a Unix socket in `directory`, which must have a short name.

    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the server's last words where it does not start.
    is_durable: what is committed is on the disk, as it must be wherever power may fail.
    A second one in a directory whose server another process started is a user of that server.
    """

    def __init__(
        self,
        *,
        directory: Path,
        programs: Path,
        is_durable: bool = True,
        start_timeout_s: float = 240.0,
    ) -> None:
        self._is_durable = is_durable
        self._directory = directory
        self._programs = programs
        self._start_timeout_s = start_timeout_s
        self._child: Child | None = None
        self._databases = 0

    def __enter__(self) -> Self:
        data = self._directory / "data"
        if not data.exists():
            self._directory.chmod(0o755)
            if os.getuid() == 0:
                user = _nobody()
                os.chown(self._directory, user.pw_uid, user.pw_gid)
            command = "initdb --auth trust --username blimp --encoding UTF8 --locale=C --no-sync -D"
            made = subprocess.run(
                self._as_nobody([*command.split(), str(data)]), capture_output=True, text=True
            )
            if made.returncode:
                raise BlimpError(f"initdb: {made.stderr}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return when it answers."""
        settings = (
            "listen_addresses=",
            f"unix_socket_directories={self._directory}",
            "shared_buffers=16MB",
            "max_connections=60",
            "autovacuum=off",
            f"fsync={'on' if self._is_durable else 'off'}",
        )
        command = ["postgres", "-D", str(self._directory / "data")]
        for setting in settings:
            command += ["-c", setting]
        with (self._directory / "log").open("ab") as log:
            self._child = Child(
                name="postgres",
                arguments=self._as_nobody(command),
                stdout=log.fileno(),
                stderr=log,
            )
        deadline_s = time.monotonic() + self._start_timeout_s
        while True:
            try:
                with self.connect("postgres"):
                    return
            except psycopg.OperationalError:
                status = self._child.exit_status()
                if status is not None or time.monotonic() > deadline_s:
                    self.stop()
                    words = (self._directory / "log").read_text(errors="replace")[-2000:]
                    raise BlimpError(f"PostgreSQL does not answer: {words}") from None
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it, cutting every session off. Idempotent."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Stop it as if it had crashed: what is not on the disk is gone."""
        self._end(signal.SIGQUIT)

    def _end(self, with_signal: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.send(with_signal)
            child.end(within_s=20.0)

    def connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self._directory), user="blimp", dbname=database, autocommit=True
        )

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the `result_backend` of an empty database, that is gone afterwards."""
        self._databases += 1
        name = f"results_{os.getpid()}_{self._databases}"  # a cluster may be several processes'
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield self.url(name)
        with self.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def url(self, database: str) -> str:
        return f"db+postgresql+psycopg://blimp@/{database}?host={self._directory}"

    def _as_nobody(self, arguments: list[str]) -> list[str]:
        program, *others = arguments
        command = [str(self._programs / program), *others]
        if os.getuid() != 0:
            return command
        user = _nobody()
        # To change the user forgets whose end is to be this one's.
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
                "--pdeathsig=INT", "--", *command]  # fmt: skip


def _nobody() -> pwd.struct_passwd:
    for name in NOBODY:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise BlimpError(f"PostgreSQL refuses to run as root, and there is no user of {NOBODY}")
