"""A real MariaDB of the tests' own, that ends with them, kill -9 included."""

import contextlib
import gc
import getpass
import os
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pymysql

from blimp.errors import BlimpError
from blimp.processes import Child
from tests.needs import not_run

HOW = "on Debian: apt-get install mariadb-server (it need not be running)"
SBIN = "/usr/sbin"  # on the path of root alone


def find_mariadb() -> str:
    """Return the server's program; where there is none it skips, and fails under CI."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path=SBIN)
    if found is None or shutil.which("mariadb-install-db") is None:
        raise not_run(f"no MariaDB here; {HOW}", module=True)
    return found


class MariaDB:
    """One server on a Unix socket in `directory`, which must have a short name.

    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the server's last words where it does not start.
    A second one in a directory whose server another process started is a user of that server.
    """

    def __init__(self, *, directory: Path, program: str, start_timeout_s: float = 240.0) -> None:
        self._directory = directory
        self._program = program
        self._start_timeout_s = start_timeout_s
        self._child: Child | None = None
        self._databases = 0

    def __enter__(self) -> Self:
        data, user = self._directory / "data", getpass.getuser()
        if not data.exists():
            made = subprocess.run(
                ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}",
                 "--auth-root-authentication-method=normal", "--skip-test-db"],
                capture_output=True, text=True,
            )  # fmt: skip
            if made.returncode:
                raise BlimpError(f"mariadb-install-db: {made.stdout[-1000:]}{made.stderr}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return when it answers."""
        command = [
            self._program, "--no-defaults", f"--datadir={self._directory}/data",
            f"--user={getpass.getuser()}", f"--socket={self._directory}/socket",
            f"--pid-file={self._directory}/pid", "--skip-networking", "--max-connections=60",
            "--innodb-buffer-pool-size=32M", "--max-allowed-packet=1M",
            "--innodb-flush-log-at-trx-commit=2",  # survives a crash of the server, not of power
        ]  # fmt: skip
        with (self._directory / "log").open("ab") as log:
            self._child = Child(name="mariadb", arguments=command, stdout=log.fileno(), stderr=log)
        deadline_s = time.monotonic() + self._start_timeout_s
        while True:
            try:
                self.run("SELECT 1")
            except pymysql.OperationalError:
                status = self._child.exit_status()
                if status is not None or time.monotonic() > deadline_s:
                    self.stop()
                    words = (self._directory / "log").read_text(errors="replace")[-2000:]
                    raise BlimpError(f"MariaDB does not answer: {words}") from None
                time.sleep(0.02)
            else:
                break
        collect_refused()

    def stop(self) -> None:
        """Stop it, cutting every session off. Idempotent."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Kill it, as if it had crashed."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.send(with_signal)
            child.end(within_s=20.0)

    def run(self, statement: str) -> Any:
        """Run one statement as the server's owner."""
        with (
            contextlib.closing(
                pymysql.connect(unix_socket=f"{self._directory}/socket", user="root")
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return cursor.fetchall()

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the `result_backend` of an empty database, that is gone afterwards."""
        self._databases += 1
        name = f"results_{os.getpid()}_{self._databases}"  # a server may be several processes'
        self.run(f"CREATE DATABASE {name}")
        yield self.url(name)
        self.run(f"DROP DATABASE {name}")

    def url(self, database: str) -> str:
        return (
            f"db+mariadb+pymysql://root@localhost/{database}?unix_socket={self._directory}/socket"
        )


def collect_refused() -> None:
    """Collect the sockets of connections that were refused, before another test is warned of them.

    PyMySQL leaves them to the interpreter.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
