"""The message about an output that does otherwise."""

import pytest

from blimp.wires.wrong import Wrong, sentence


@pytest.mark.parametrize("wrong", list(Wrong))
def test_every_fault_says_what_is_seen_and_what_to_do_in_one_message(wrong: Wrong) -> None:
    said = sentence(wrong, ("left-front-motor", "right-rear-motor"))
    names, _, rest = said.partition("right-rear-motor ")
    assert names == "left-front-motor and "
    assert all(rest.split(": "))
    assert len(said) < 200  # a message's limit


def test_two_that_are_swapped_have_their_plugs_exchanged() -> None:
    assert sentence(Wrong.SWAPPED, ("left", "right")).startswith(
        "left and right seem swapped: exchange their plugs"
    )
