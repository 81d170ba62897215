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


@pytest.mark.parametrize(
    ("chip", "rate", "least"), [("crsf", 1e-3, 500), ("crsf", 1e-2, 20), ("sbus", 1e-3, 500)]
)
def test_bit_errors_cost_frames_and_move_no_stick_far(chip: str, rate: float, least: int) -> None:
    """A frame has 200 bits. What passes by a lone flipped bit is small, and lasts one frame."""
    with lockstep(rows.ship(chip)) as machine:
        flight = Flight(machine)
        with flight.board:
            flight.run(1.0)
            flight.world.fault("transmitter", "bit_errors", rate=rate)
            times, switches, sticks = set(), -1.0, 0.0
            for _ in range(1000):
                made = flight.run(0.01).transmitter
                if made is None or not made.channels:
                    continue
                times.add(made.t_s)
                sticks = max(sticks, *map(abs, made.channels[:4]))
                switches = max(switches, *made.channels[4:])
            assert len(times) >= least
            limit = 0.001 if (chip, rate) == ("crsf", 1e-3) else 0.65
            assert sticks <= limit
            assert switches <= -1.0 + limit
