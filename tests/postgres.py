"""A real PostgreSQL of the tests' own, that ends with them, kill -9 included."""

import contextlib
import os
import pwd
import shutil
import signal
from pathlib import Path

import psycopg

from blimp.errors import BlimpError
from tests.database_server import DatabaseServer
from tests.forked import ran
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


class Postgres(DatabaseServer):
    """One cluster; see DatabaseServer.

    is_durable: what is committed is on the disk, as it must be wherever power may fail.
    """

    name = "postgres"
    stops_by, crashes_by = signal.SIGINT, signal.SIGQUIT
    refusal = psycopg.OperationalError
    drop = "DROP DATABASE {} WITH (FORCE)"

    def __init__(self, *, directory: Path, programs: Path, is_durable: bool = True) -> None:
        super().__init__(directory=directory)
        self._is_durable = is_durable
        self._programs = programs

    def make(self) -> None:
        self._directory.chmod(0o755)
        if os.getuid() == 0:
            user = _nobody()
            os.chown(self._directory, user.pw_uid, user.pw_gid)
        command = "initdb --auth trust --username blimp --encoding UTF8 --locale=C --no-sync -D"
        made = ran(self._as_nobody([*command.split(), str(self._directory / "data")]))
        if made.returncode:
            raise BlimpError(f"initdb: {made.stderr}")

    def command(self) -> list[str]:
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
        return self._as_nobody(command)

    def run(self, statement: str) -> None:
        with psycopg.connect(
            host=str(self._directory), user="blimp", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())

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
