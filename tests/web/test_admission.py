"""The limits of strangers: who has to end for whom, how often, and how many lines they cause."""

import logging

from blimp.clock import ManualClock
from blimp.web.admission import Crowds, FewLines, Limits, Rate, Visit, network_of

LIMITS = Limits(strangers=6, strangers_of_an_address=4, known=2)


def crowds() -> tuple[Crowds, list[Visit]]:
    ended: list[Visit] = []
    return Crowds(LIMITS, end=ended.append), ended


def visit(own: Crowds, address: str) -> Visit:
    found = Visit(None, address, 0.0, own)  # type: ignore[arg-type]
    own.enter(found)
    return found


def test_one_more_closes_the_oldest_of_the_address_that_has_most() -> None:
    own, ended = crowds()
    honest = visit(own, "192.0.2.1")
    many = [visit(own, "192.0.2.66") for _ in range(4)]
    assert ended == []
    many.append(visit(own, "192.0.2.66"))  # over the limit of an address
    assert ended == many[:1]
    others = [visit(own, f"192.0.2.{number}") for number in (2, 3)]  # over that of all
    assert ended == many[:2]
    assert honest in own.strangers
    assert all(one in own.strangers for one in others)


def test_a_crowd_of_many_addresses_closes_the_oldest() -> None:
    own, ended = crowds()
    visits = [visit(own, f"192.0.2.{number}") for number in range(8)]
    assert ended == visits[:2]


def test_a_token_takes_a_visit_out_of_the_strangers() -> None:
    own, ended = crowds()
    known = visit(own, "192.0.2.1")
    known.known()
    known.known()
    for _ in range(20):
        visit(own, "192.0.2.1")
    assert known not in ended
    for _ in range(2):  # one who has a token cannot take all files either
        visit(own, "192.0.2.1").known()
    assert known in ended
    known.left()
    known.left()


def test_a_rate_allows_so_many_at_once_and_lets_few_more_wait() -> None:
    clock = ManualClock()
    rate = Rate(per_s=2.0, at_once=3, wait_s=1.0, clock=clock)
    assert [rate.take() for _ in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, None]
    clock.advance(1.0)
    assert [rate.take() for _ in range(3)] == [0.5, 1.0, None]
    clock.advance(3600.0)
    assert [rate.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_a_network_of_64_bits_is_one_address() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") == "2001:db8::"
    assert network_of("fe80::1%eth0") == "fe80::"


def test_a_library_writes_few_lines_and_how_many_it_left_out() -> None:
    clock = ManualClock()
    few = FewLines(clock=clock, most=2, within_s=60.0)

    def line() -> logging.LogRecord:
        return logging.LogRecord("x", logging.WARNING, "", 0, "bad %s", ("request",), None)

    assert [few.filter(line()) for _ in range(5)] == [True, True, False, False, False]
    clock.advance(60.0)
    later = line()
    assert few.filter(later)
    assert later.getMessage() == "bad request (3 more before)"
