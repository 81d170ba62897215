"""Which addresses of this machine are shown to a room."""

import shutil

import pytest

from blimp.web import listening
from blimp.web.listening import reachable_addresses, room_words, shown_address
from tests.forked import ran


def test_the_addresses_are_those_of_the_interfaces_that_others_reach() -> None:
    if shutil.which("ip") is None:
        pytest.skip("ip is not here")
    said = ran(["ip", "-4", "-o", "addr"], check=True)
    words = [line.split() for line in said.stdout.splitlines()]
    expected = {row[row.index("inet") + 1].partition("/")[0] for row in words}
    found = reachable_addresses()
    assert set(found) == {one for one in expected if not one.startswith("127.")}
    assert shown_address("0.0.0.0") == (found[0] if found else "127.0.0.1")


def test_a_machine_in_two_networks_shows_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "reachable_addresses", lambda: ["10.0.0.2", "192.168.4.1"])
    assert shown_address("0.0.0.0") == "10.0.0.2"
    (words,) = room_words("http://10.0.0.2:8765/?token=t")
    assert words.endswith("http://192.168.4.1:8765/?token=t")
