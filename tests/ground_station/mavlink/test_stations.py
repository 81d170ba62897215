"""Which station has the ship, on a clock that the test moves."""

from ground_station.mavlink.stations import LOST_S, MAX_STATIONS, Station, Stations

FIRST, SECOND = Station(255, 190, "udp:a:1"), Station(254, 190, "udp:b:1")


def test_who_may_command_and_when_a_link_is_lost() -> None:
    now_s = 0.0
    stations = Stations(lambda: now_s)
    assert stations.refusal(FIRST) == ""
    stations.hear(FIRST, is_beat=True)
    stations.give(FIRST)
    now_s += LOST_S
    assert stations.refusal(SECOND) == "station 255 has the ship while its heartbeat comes"
    assert stations.present()
    now_s += 0.1
    stations.hear(FIRST)  # what else it sends is no heartbeat
    assert not stations.present()
    assert stations.refusal(SECOND) == ""
    stations.hear(FIRST, is_beat=True)
    assert stations.present()


def test_a_station_without_heartbeats_is_missed_after_its_last_message() -> None:
    """It kept the ship for ever: nobody missed it."""
    now_s = 0.0
    stations = Stations(lambda: now_s)
    stations.give(FIRST)
    now_s = LOST_S
    assert stations.present()
    stations.hear(FIRST)
    now_s += LOST_S
    assert stations.present()
    assert stations.refusal(SECOND)
    now_s += 0.1
    assert not stations.present()
    assert stations.refusal(SECOND) == ""


def test_the_same_number_at_another_address_is_another_station() -> None:
    now_s = 0.0
    stations = Stations(lambda: now_s)
    other = FIRST._replace(peer="udp:b:1")
    stations.hear(FIRST, is_beat=True)
    stations.give(FIRST)
    words = "another station 255 at udp:a:1 has the ship while its heartbeat comes"
    assert stations.refusal(other) == words
    now_s = LOST_S + 0.1
    stations.hear(other, is_beat=True)  # keeps nobody else's link
    assert not stations.present()


def test_a_flood_of_stations_does_not_push_out_the_one_that_has_the_ship() -> None:
    now_s = 0.0
    stations = Stations(lambda: now_s)
    stations.hear(FIRST, is_beat=True)
    stations.give(FIRST)
    now_s = 1.0
    for number in range(4 * MAX_STATIONS):
        stations.hear(Station(number % 250, number // 250, "udp:c:1"), is_beat=True)
    now_s = 1.0 + LOST_S
    assert not stations.present()
