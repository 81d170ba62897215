"""A real MariaDB of the tests' own, that ends with them, kill -9 included."""

import contextlib
import gc
import getpass
import shutil
import signal
import subprocess
import warnings
from pathlib import Path

import pymysql

from blimp.errors import BlimpError
from tests.database_server import DatabaseServer
from tests.needs import not_run

HOW = "on Debian: apt-get install mariadb-server (it need not be running)"
SBIN = "/usr/sbin"  # on the path of root alone


def find_mariadb() -> str:
    """Return the server's program; where there is none it skips, and fails under CI."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path=SBIN)
    if found is None or shutil.which("mariadb-install-db") is None:
        raise not_run(f"no MariaDB here; {HOW}", module=True)
    return found


class MariaDB(DatabaseServer):
    """One server; see DatabaseServer. program: its path."""

    name = "mariadb"
    stops_by, crashes_by = signal.SIGTERM, signal.SIGKILL
    refusal = pymysql.OperationalError

    def __init__(self, *, directory: Path, program: str) -> None:
        super().__init__(directory=directory)
        self._program = program

    def make(self) -> None:
        made = subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={self._directory}/data",
             f"--user={getpass.getuser()}", "--auth-root-authentication-method=normal",
             "--skip-test-db"],
            capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode:
            raise BlimpError(f"mariadb-install-db: {made.stdout[-1000:]}{made.stderr}")

    def command(self) -> list[str]:
        return [
            self._program, "--no-defaults", f"--datadir={self._directory}/data",
            f"--user={getpass.getuser()}", f"--socket={self._directory}/socket",
            f"--pid-file={self._directory}/pid", "--skip-networking", "--max-connections=60",
            "--innodb-buffer-pool-size=32M", "--max-allowed-packet=1M",
            "--innodb-flush-log-at-trx-commit=2",  # survives a crash of the server, not of power
        ]  # fmt: skip

    def start(self) -> None:
        super().start()
        collect_refused()

    def run(self, statement: str) -> None:
        with (
            contextlib.closing(
                pymysql.connect(unix_socket=f"{self._directory}/socket", user="root")
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)

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
