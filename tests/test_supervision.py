"""What the stack stands on: readiness, children that cannot outlive their parent, paths."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from blimp.errors import ConfigError
from blimp.link.paths import RuntimePaths
from blimp.processes import Child
from blimp.service import notify
from blimp.service.notify import NotifyListener


def test_readiness_is_heard_with_the_number_the_kernel_vouches_for(tmp_path: Path) -> None:
    listener = NotifyListener(path=tmp_path / "notify.sock")
    notify.tell(notify.READY, address=str(listener.path))
    notify.tell(notify.READY_TO_ARM, address=str(listener.path))
    assert listener.told() == [(os.getpid(), "READY=1"), (os.getpid(), "STATUS=ready to arm")]
    assert listener.told() == []
    listener.close()
    listener.close()
    assert not (tmp_path / "notify.sock").exists()


def test_without_a_supervisor_nothing_is_told(tmp_path: Path) -> None:
    notify.tell(notify.READY, address=None)
    notify.tell(notify.READY, address=str(tmp_path / "gone.sock"))


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


def test_a_runtime_directory_too_deep_for_a_socket_is_refused_by_name() -> None:
    RuntimePaths(Path("/run/blimp")).check()
    deep = Path("/tmp") / ("d" * 100)
    with pytest.raises(ConfigError, match=r"dddd.*limit is 107"):
        RuntimePaths(deep).check()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["up", "--sim", "--airframe", "zeppelin"],
            "no airframe 'zeppelin': known are gtmab, twin",
        ),
        (["up", "--sim", "--vehicle", "My Ship"], "--vehicle: 'My Ship' cannot name a ship"),
        (["up", "--sim", "--runtime-dir", "/tmp/" + "x" * 120], "limit is 107"),
        (
            ["up", "--sim", "--seed", "-1"],
            "Invalid value for '--seed': Input should be greater than or equal to 0",
        ),
        (
            ["up", "--sim", "--wind", "nan"],
            "Invalid value for '--wind': Input should be less than or equal to 20",
        ),
        (["up"], "--sim"),
        (["fly", "--runtime-dir", "/nonexistent/blimp"], "/nonexistent/blimp/flight.sock"),
        (["worker", "--vehicle", "twin"], "no broker: give --broker URL, or set BLIMP_BROKER_URL"),
        (["safe-state", "--sim", "--runtime-dir", "/nonexistent"], "not known to be safe"),
        (["demo", "--headless", "--mission", "nowhere"], "nowhere"),
    ],
)
def test_bad_options_are_named_in_one_breath(arguments: list[str], words: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BLIMP_")}
    ended = subprocess.run(
        [sys.executable, "-m", "blimp", *arguments],
        capture_output=True, text=True, env=environment, check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode in (1, 2)
    assert ended.stdout == ""
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
