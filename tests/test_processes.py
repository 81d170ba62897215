"""Child processes that cannot outlive their parent."""

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from blimp.processes import Child


def test_a_child_that_ignores_the_request_is_killed() -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    child = Child(
        name="stubborn", arguments=[sys.executable, "-c", stubborn], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()  # it ignores SIGTERM from here on
    child.end(within_s=0.1)
    assert child.exit_status() == -signal.SIGKILL
    child.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("begun", [False, True])
def test_a_child_dies_with_a_parent_that_was_killed(number: signal.Signals, begun: bool) -> None:
    """By the signal asked for; also when the parent dies before the child has begun."""
    parent = textwrap.dedent(
        """
        import os, signal, subprocess, sys
        from blimp.processes import Child
        ignored = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if sys.argv[1] == "9" else ""
        code = f"import signal; {ignored} print(flush=True); signal.pause()"
        child = Child(
            name="sleeper",
            arguments=[sys.executable, "-c", code],
            death_signal=signal.Signals(int(sys.argv[1])),
            stdout=subprocess.PIPE,
        )
        if sys.argv[2] == "True":
            child.stdout.readline()
        print(child.pid, flush=True)
        signal.pause()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(int(number)), str(begun)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pidfd = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    assert select.select([pidfd], [], [], 10.0)[0], "the child outlived its parent"
    os.close(pidfd)


def test_a_child_starts_as_if_nothing_stood_before_it() -> None:
    """Same number, arguments, environment and signals as without the step that ties it."""
    tell = """echo "$$ $1 $MARK" $(grep SigIgn /proc/$$/status)"""
    lines = []
    for death_signal in (signal.SIGTERM, None):
        child = Child(
            name="teller",
            arguments=["sh", "-c", tell, "sh", "a b"],  # found on PATH; no signals of its own
            death_signal=death_signal,
            environment={"MARK": "here"},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        number, _, rest = child.stdout.readline().partition(b" ")
        assert int(number) == child.pid
        lines.append(rest)
        child.end(within_s=5.0)
    assert lines[0] == lines[1]
    assert lines[0].startswith(b"a b here SigIgn:")


def test_a_program_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child(name="nobody", arguments=["/nonexistent/program"])
    assert select.select([child], [], [], 10.0)[0]
    assert child.exit_status() == 1
    child.close()
    assert "cannot run /nonexistent/program: No such file" in capfd.readouterr().err
