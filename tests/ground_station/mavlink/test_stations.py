"""Which station has the ship, on a clock that the test moves."""

from ground_station.mavlink.stations import LOST_S, MAX_STATIONS, Stations


def test_who_may_command_and_when_a_link_is_lost() -> None:
    now_s = 0.0
    stations = Stations(lambda: now_s)
    first, second = (255, 190), (254, 190)
    assert stations.refusal(first) == ""
    stations.holder = first
    now_s = 100.0
    assert stations.present()  # it has never sent a heartbeat: it is not missed
    stations.beat(first)
    now_s += LOST_S
    assert stations.refusal(second) == "station 255 has the ship while its heartbeat comes"
    assert stations.present()
    now_s += 0.1
    assert not stations.present()
    assert stations.refusal(second) == ""
    stations.beat(first)
    assert stations.present()


def test_a_flood_of_stations_does_not_push_out_the_one_that_has_the_ship() -> None:
    now_s = 0.0
    stations = Stations(lambda: now_s)
    stations.holder = (255, 190)
    stations.beat(stations.holder)
    now_s = 1.0
    for number in range(4 * MAX_STATIONS):
        stations.beat((number % 250, number // 250))
    now_s = 1.0 + LOST_S
    assert not stations.present()
