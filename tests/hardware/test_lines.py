import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.lines import LineReader, number


def test_a_line_in_pieces_comes_once_whole() -> None:
    reader = LineReader(limit=80)
    assert reader.feed(b"POS,1") == []
    assert reader.feed(b".0,2.0") == []
    assert reader.feed(b"\r\nPOS") == ["POS,1.0,2.0"]
    assert reader.feed(b"\n\n\r\n") == ["POS"]


def test_a_line_beyond_the_limit_is_dropped_to_its_end() -> None:
    reader = LineReader(limit=10)
    assert reader.feed(b"x" * 50) == []
    assert reader.feed(b"y" * 50) == []
    assert len(reader._rest) <= 12
    assert reader.feed(b"tail\ngood\n") == ["good"]
    assert reader.garbage == 1
    assert reader.feed(b"x" * 11 + b"\n" + b"y" * 10 + b"\n") == ["y" * 10]


def test_what_is_no_printable_ascii_is_garbage() -> None:
    reader = LineReader(limit=80)
    assert reader.feed(b"\xff\xfe\n\x01bell\nok\n") == ["ok"]
    assert reader.garbage == 2


@given(st.lists(st.binary(max_size=300)))
def test_any_bytes_in_any_pieces_give_the_same_short_printable_lines(pieces: list[bytes]) -> None:
    reader = LineReader(limit=82)
    lines = [line for piece in pieces for line in reader.feed(piece)]
    for line in lines:
        assert 0 < len(line) <= 82
        assert line.isprintable()


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "1e5", "1_0", "", " 1", "٣", "0x10", "-", "."]
)
def test_what_is_no_plain_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("1.25", 1.25), ("-3", -3.0), ("+.5", 0.5), ("2.", 2.0)]
)
def test_plain_numbers(text: str, value: float) -> None:
    assert number(text) == value
