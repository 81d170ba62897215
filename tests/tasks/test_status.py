"""The status task: the newest snapshot."""

from blimp.link.mailbox import MailboxClient
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S
from tests.tasks.ship import FlightSide, publish


def test_status_is_the_newest_snapshot_with_its_age(
    ship: FlightSide, ground: VehicleClient, mailbox: MailboxClient
) -> None:
    assert "no snapshot yet" in ground.send("status").wait(DEADLINE_S).reason
    publish(ship, mailbox)
    result = ground.send("status").wait(DEADLINE_S).result
    assert result["mode"] == "HOLD"
    assert result["attitude_rad"] == {"roll": 0.0, "pitch": 0.0, "yaw": 0.1}
    assert 0.0 <= result["age_s"] < DEADLINE_S
