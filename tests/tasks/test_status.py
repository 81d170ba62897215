"""The status task: the newest snapshot."""

import msgspec

from blimp.link.mailbox import MailboxClient
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S
from tests.snapshot import SNAPSHOT
from tests.tasks.ship import FlightSide, publish


def test_status_is_the_newest_snapshot_with_its_age(
    ship: FlightSide, ground: VehicleClient, mailbox: MailboxClient
) -> None:
    assert "no snapshot yet" in ground.send("status").wait(DEADLINE_S).reason
    publish(ship, mailbox)
    result = ground.send("status").wait(DEADLINE_S).result
    assert result["mode"] == SNAPSHOT.mode
    assert result["attitude_rad"] == msgspec.to_builtins(SNAPSHOT.attitude_rad)
    assert 0.0 <= result["age_s"] < DEADLINE_S
