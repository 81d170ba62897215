"""Where a value ends, and what it asks for."""

import pytest

from tests.faults import resp

VALUES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":12\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\na\r\nb\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*1\r\n$1\r\na\r\n:1\r\n",
    b"%1\r\n+a\r\n*2\r\n:1\r\n_\r\n",
    b">2\r\n+message\r\n$1\r\nx\r\n",
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_ends_where_it_ends_and_not_before(value: bytes) -> None:
    for cut in range(1, len(value)):
        assert resp.end_of(value[:cut]) is None
    assert resp.end_of(value + b"+next\r\n") == len(value)


def test_whole_values_are_taken_and_the_rest_stays() -> None:
    data = bytearray(b"".join(VALUES) + b"$5\r\nhal")
    assert resp.split(data) == VALUES
    assert data == b"$5\r\nhal"


def test_the_words_of_a_request() -> None:
    assert resp.words(b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n") == [b"GET", b"\r\n\r\n"]


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no RESP value begins with 'G'"):
        resp.end_of(b"GET a\r\n")
