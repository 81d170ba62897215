import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import CameraError, LinkError
from blimp.link.camera_control import MAX_AT_ONCE, ControlServer, ask, camera_status

WAIT_S = 30.0


def refuse(_: dict[str, Any]) -> Any:
    raise CameraError("no photograph: no camera 0")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    answers = {
        "echo": lambda about: about, "photo": refuse, "bad": lambda about: about["no"],
        "big": lambda _: bytes(200_000), "status": lambda _: {"camera": 3},
    }  # fmt: skip
    where = tmp_path / "camera-control.sock"
    with ControlServer(where, answers):
        yield where
    assert not where.exists()


def test_an_answer_a_refusal_and_a_mistake(path: Path) -> None:
    assert ask(path, "echo", timeout_s=WAIT_S, jpeg=b"\xff\xd8") == {"jpeg": b"\xff\xd8"}
    for name, words in (
        ("photo", "^no photograph: no camera 0"), ("bad", "bad: KeyError"),
        ("nothing", "no question 'nothing'"),
        ("big", "the answer has 200"),
    ):  # fmt: skip
        with pytest.raises(CameraError, match=words):
            ask(path, name, timeout_s=WAIT_S)
    with pytest.raises(LinkError, match="another version"):
        camera_status(path)


def test_what_is_no_question_ends_nothing(path: Path) -> None:
    for data in (b"\xc1", b"\x91" * 5000, os.urandom(100)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.settimeout(WAIT_S)
            channel.connect(str(path))
            channel.send(data)
            assert b"no question" in channel.recv(10_000)
    assert ask(path, "echo", timeout_s=WAIT_S) == {}


def test_nobody_answers_in_time(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="No such file"):
        ask(tmp_path / "none.sock", "status", timeout_s=0.1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stopped:  # as by SIGSTOP
        stopped.bind(str(tmp_path / "stopped.sock"))
        stopped.listen(1)
        with pytest.raises(LinkError, match=r"no answer \(0\.1 s\)"):
            ask(tmp_path / "stopped.sock", "status", timeout_s=0.1)


def test_one_process_owns_the_camera_and_follows_one_that_was_killed(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CameraError, match="another camera process runs"):
        ControlServer(path, {})
    left = path.with_name("left.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.bind(str(left))
    left.parent.chmod(0o750)
    with ControlServer(left, {"echo": lambda about: about}):
        assert stat.S_IMODE(left.stat().st_mode) == 0o660
        assert ask(left, "echo", timeout_s=WAIT_S) == {}


def test_a_crowd_waits_no_longer_than_it_likes(tmp_path: Path) -> None:
    go_on, began = threading.Event(), threading.Semaphore(0)

    def wait(_: dict[str, Any]) -> bool:
        began.release()
        return go_on.wait(WAIT_S)

    path = tmp_path / "c.sock"
    with ControlServer(path, {"wait": wait}):
        threads = [
            threading.Thread(target=ask, args=(path, "wait"), kwargs={"timeout_s": WAIT_S})
            for _ in range(MAX_AT_ONCE)
        ]
        for thread in threads:
            thread.start()
            assert began.acquire(timeout=WAIT_S)
        with pytest.raises(LinkError, match="no answer"):
            ask(path, "wait", timeout_s=0.1)
        go_on.set()
        for thread in threads:
            thread.join()
