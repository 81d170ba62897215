"""Drivers and simulated receivers over pyserial's pseudo-terminals, with a noisy line."""

import pytest

from blimp.types import TransmitterSample
from tests.contracts import rows
from tests.contracts.flight import Flight
from tests.contracts.machines import lockstep


@pytest.mark.parametrize("chip", ["crsf", "sbus"])
def test_each_channel_is_read_as_it_is_set(chip: str) -> None:
    with lockstep(rows.ship(chip)) as machine:
        flight = Flight(machine)
        with flight.board:
            for i in range(16):
                channel, value = f"ch{i + 1}", 0.8 - 0.1 * i
                flight.world.fault("transmitter", "stuck", channel=channel, value=value)
            made = flight.run(1.0).transmitter
            assert made is not None
            assert made.channels == pytest.approx([0.8 - 0.1 * i for i in range(16)], abs=0.001)


@pytest.mark.parametrize("chip", ["crsf", "sbus"])
def test_out_of_range_the_receiver_says_so_and_comes_back(chip: str) -> None:
    with lockstep(rows.ship(chip)) as machine:
        flight = Flight(machine)
        with flight.board:
            flight.run(1.0)
            flight.world.fault("transmitter", "unlinked")
            made = flight.run(0.2).transmitter
            assert made == TransmitterSample(t_s=made.t_s if made else 0.0)
            flight.world.fault("transmitter", "clear")
            made = flight.run(0.3).transmitter
            assert made is not None
            assert made.channels != ()
