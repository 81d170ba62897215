import pytest

from blimp.hardware.dwm1001 import Dwm1001
from tests.hardware.doubles import Doubles, Port, on_port, polled, well

PORT = "/dev/ttyAMA0"


def fitted() -> tuple[Dwm1001, Port, Doubles]:
    return on_port(Dwm1001, port=PORT, name="tag", chip="dwm1001", rate_hz=10.0)


def test_the_rooms_frame_becomes_north_east_down() -> None:
    tag, port, _ = fitted()
    port.arrive(b"POS,1.50,2.25,0.75,100\r\n" * 2)
    tag.poll(0.1)
    assert tag.sample is not None
    assert tag.sample.position_ned_m == (2.25, 1.5, -0.75)
    assert tag.sample.accuracy_m == pytest.approx(0.1)
    assert well(tag)


@pytest.mark.parametrize(("quality", "accuracy_m"), [(100, 0.1), (50, 0.55), (10, 0.91)])
def test_quality_becomes_accuracy(quality: int, accuracy_m: float) -> None:
    tag, port, _ = fitted()
    port.arrive(f"POS,1,2,3,{quality}\n".encode())
    tag.poll(0.1)
    assert tag.sample is not None
    assert tag.sample.accuracy_m == pytest.approx(accuracy_m)


def test_a_poor_quality_is_no_sample_and_no_fault() -> None:
    tag, port, _ = fitted()
    port.arrive(b"POS,1,2,3,5\n")
    tag.poll(0.1)
    assert tag.sample is None
    assert well(tag)
    assert "quality 5" in tag.error


def test_a_prompt_or_half_a_line_before_it_is_tolerated() -> None:
    tag, port, _ = fitted()
    port.arrive(b"dwm> POS,1,2,3,90\r\nPOS,1.0,2POS,4,5,6,90\r\n")
    tag.poll(0.1)
    assert tag.sample is not None
    assert tag.sample.position_ned_m == (5.0, 4.0, -6.0)


@pytest.mark.parametrize(
    "line",
    ["POS,nan,2,3,90", "POS,inf,2,3,90", "POS,1,2,3", "POS,1,2,3,4,5", "POS,1,2,3,101",
     "POS,1,2,3,-1", "POS,1e9,2,3,90", "POS,5000,2,3,90", "POS,,,,", "XPOS", "hello"],
)  # fmt: skip
def test_what_is_no_position_is_counted(line: str) -> None:
    tag, port, _ = fitted()
    port.arrive(line.encode() + b"\r\n")
    tag.poll(0.1)
    assert tag.sample is None
    assert tag.garbage == 1


def test_a_line_that_never_changes_is_frozen() -> None:
    tag, _, buses = fitted()
    for step in range(60):
        buses.ports[PORT].arrive(b"POS,1,2,3,90\r\n")
        tag.poll(0.1 + 0.1 * step)
    assert tag.sample is not None
    assert tag.sample.t_s == pytest.approx(0.1)
    assert not well(tag)
    assert buses.ports[PORT].written == b"", "it speaks: a command would silence it"


def test_a_silent_tag_is_asked_to_speak_but_a_speaking_one_never() -> None:
    tag, port, buses = fitted()
    polled(tag, 90, start_s=0.1, every_s=0.1)
    sent = buses.ports[PORT].written
    assert port.written == b"", "it is listened to first"
    assert sent == b"\r\rlep\r"
    for step in range(30):
        buses.ports[PORT].arrive(f"POS,1,2,3.{step},90\r\n".encode())
        tag.poll(9.1 + 0.1 * step)
    assert well(tag)
    polled(tag, 30, start_s=12.1, every_s=0.1)
    assert buses.ports[PORT].written in (sent, b""), "it spoke a moment ago"
