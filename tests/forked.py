"""Programs in processes of their own; a command of this project without an interpreter's start."""

import os
import pwd
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a command ended, as `subprocess.run` says it."""

    returncode: int
    stdout: str
    stderr: str


def ran(words: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its exit status, and as text what it printed.

    options: of `subprocess.run`; with `check` a failure raises.
    """
    return subprocess.run(words, **({"check": False} | options), capture_output=True, text=True)


def blimp(*words: object, environment: Mapping[str, str] | None = None) -> Ended:
    """Run `blimp`, in this environment if there is none for it."""
    return forked("blimp", *map(str, words), environment=environment or os.environ)


def forked(
    program: str,
    *words: str,
    environment: Mapping[str, str],
    user: str | None = None,
    typed: int | None = None,
) -> Ended:
    """Run `python -m program` in a fork, without an input.

    Another interpreter would import all of it again, for 0.4 s of a processor each. user: as whom,
    with that user's groups; else as this one. typed: the file to read as standard input.
    """
    with (
        tempfile.TemporaryFile("w+") as stdout,
        tempfile.TemporaryFile("w+") as stderr,
        warnings.catch_warnings(),  # of a fork beside threads: it starts and waits for none
    ):
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            status = 70
            try:
                with open(os.devnull) as nothing:
                    source = nothing.fileno() if typed is None else typed
                    for number, file in enumerate((source, stdout.fileno(), stderr.fileno())):
                        os.dup2(file, number)
                sys.stdout, sys.stderr = stdout, stderr
                environment = dict(environment)
                os.environ.clear()
                os.environ.update(environment)
                if user is not None:
                    account = pwd.getpwnam(user)
                    os.initgroups(user, account.pw_gid)
                    os.setgid(account.pw_gid)
                    os.setuid(account.pw_uid)
                sys.argv = [program, *words]
                # pytest rewrites the modules of a package that brings it a plugin, and its hook
                # for that cannot run one.
                sys.meta_path[:] = [
                    finder for finder in sys.meta_path if "Rewrit" not in type(finder).__name__
                ]
                runpy.run_module(program, run_name="__main__", alter_sys=True)
                status = 0
            except SystemExit as end:  # as the interpreter does it
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=stderr)
            except BaseException:
                traceback.print_exc(file=stderr)
            finally:  # nothing else of the test may run in a fork
                stdout.flush()
                stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        stdout.seek(0)
        stderr.seek(0)
        return Ended(os.waitstatus_to_exitcode(ended), stdout.read(), stderr.read())
