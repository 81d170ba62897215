"""Pilots: who commands a ship, on the command line, from one command to the next."""

import re
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from blimp.queue.redis.client import RedisServer
from blimp.tasks.authority import pilots
from blimp.tasks.client import VehicleClient
from blimp.types import Command, Outcome
from ground_station.kept import Kept, KeptControl
from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import Ground

As = Callable[[str], Ground]


@pytest.fixture
def user(
    twin: FlyingShip,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> As:
    """`ground` as one user or another: each has a state directory of his own."""

    def use(name: str) -> Ground:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))
        ground = Ground(capsys)
        ground.options = ["--broker", twin.broker.url, "--vehicle", twin.vehicle]
        return ground

    return use


def take(user: As, name: str, *options: str) -> Ground:
    ground = user(name)
    assert ground("control", "take", "--pilot", name, *options) == 0, ground.err
    return ground


def test_while_nobody_holds_control_everybody_commands(user: As, twin: FlyingShip) -> None:
    ground = user("alice")
    status, got = ground.json("control", "who")
    assert status == 0
    assert got["result"] == {
        "vehicle": twin.vehicle, "pilot": None, "yours": False, "held_s": None, "left_s": None
    }  # fmt: skip
    assert ground("arm") == 0
    assert ground("control", "who") == 0
    assert ground.out == f"nobody holds control of {twin.vehicle}: everybody commands it\n"


def test_one_pilot_commands_and_the_others_hear_who(user: As, twin: FlyingShip) -> None:
    alice = take(user, "alice")
    assert alice.out == f"alice holds control of {twin.vehicle}, for 120 s after each command\n"
    assert alice("arm") == 0

    bob = user("bob")
    status, got = bob.json("disarm")
    assert (status, got["state"]) == (7, "REFUSED")
    words = f"alice holds control of {twin.vehicle}, for another "
    assert got["reason"].startswith(words)
    assert bob("disarm") == 7
    assert words in bob.err
    assert twin.ship.snapshot().armed

    assert bob("ping") == 0
    assert bob("sensor", "baro") == 0
    status, got = bob.json("control", "who")
    assert (status, got["result"]["pilot"], got["result"]["yours"]) == (0, "alice", False)
    assert 100.0 < got["result"]["left_s"] <= 120.0
    assert bob("control", "who") == 0
    assert re.fullmatch(
        rf"alice has had control of {twin.vehicle} for \d+ s; it ends in \d+ s unless it is "
        r"renewed\n",
        bob.out,
    )
    alice = user("alice")
    assert alice("control", "who") == 0
    assert alice.out.startswith("alice (you) has had control")
    assert bob("estop") == 0
    assert twin.ship.snapshot().killed


def test_held_control_cannot_be_taken_or_released_by_another(user: As, twin: FlyingShip) -> None:
    take(user, "alice")
    bob = user("bob")
    for words in (["take"], ["release"]):
        status, got = bob.json("control", *words)
        assert (status, got["task"], got["state"]) == (7, "control", "FAILURE")
        assert got["reason"].startswith(f"alice holds control of {twin.vehicle}, for another ")
    assert user("alice")("arm") == 0


def test_a_namesake_is_another_pilot(user: As) -> None:
    take(user, "alice")
    assert user("elsewhere")("control", "take", "--pilot", "alice") == 7


def test_given_back_it_is_everybodys_again_and_an_old_token_is_worth_nothing(
    user: As, twin: FlyingShip
) -> None:
    alice = take(user, "alice")
    kept = next(Path(p) for p in _files(twin, user, "alice"))
    before = kept.read_bytes()
    assert alice("control", "release") == 0
    assert alice.out == f"control of {twin.vehicle} is given back: everybody commands it\n"
    assert not kept.exists()
    assert alice("control", "release") == 0
    assert user("bob")("arm") == 0
    kept.write_bytes(before)
    kept.chmod(0o600)
    alice = user("alice")
    assert alice("disarm") == 0  # nobody holds it
    assert f"control of {twin.vehicle} is no longer yours: released" in alice.err
    assert not kept.exists()


def test_by_force_it_is_taken_and_the_first_pilot_hears_of_it(user: As, twin: FlyingShip) -> None:
    take(user, "alice")
    bob = user("bob")
    assert bob("control", "take", "--pilot", "bob", "--force") == 4
    assert f"alice holds control of {twin.vehicle}. Take it away?" in bob.err
    assert bob("control", "take", "--pilot", "bob", "--force", "--yes", "--dry-run") == 0
    assert bob("arm") == 7
    assert bob("control", "take", "--pilot", "bob", "--force", "--yes") == 0
    assert bob("arm") == 0
    alice = user("alice")
    assert alice("disarm") == 7
    assert "no longer yours: taken away; bob holds it now" in alice.err
    assert "bob holds control" in alice.err


def test_every_command_of_its_holder_renews_it_for_as_long_as_was_asked(
    user: As, twin: FlyingShip
) -> None:
    take(user, "alice", "--for", "300")
    link = RedisServer(twin.broker.url)
    pool = pilots(link, twin.vehicle)
    before = pool.stats().renewed
    assert user("alice")("arm") == 0
    stats = pool.stats()
    assert stats.renewed > before
    assert stats.busy[0].left_s > 290.0
    take(user, "alice", "--for", "30")  # the same grant, for less
    assert pool.stats().busy[0].left_s <= 30.0
    assert pool.stats().busy[0].token == stats.busy[0].token
    link.close()


def test_the_token_is_for_this_user_alone(user: As, twin: FlyingShip) -> None:
    take(user, "alice")
    (path,) = _files(twin, user, "alice")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o640)
    assert user("alice")("arm") == 7  # who else knows it?


NO_GRANTS = [
    b"", b"{", b"[]", b"\xff", b"[" * 9000, b'{"pool": 1}',
    b'{"pool":"p","resource":"e","token":1,"holder":"h","ttl_s":120}',
    b'{"pool":"POOL","resource":"SHIP","token":-1,"holder":"h","ttl_s":120}',
    b'{"pool":"POOL","resource":"SHIP","token":5,"holder":"","ttl_s":120}',
    b'{"pool":"POOL","resource":"SHIP","token":5,"holder":"h","ttl_s":1e9}',
    b'{"pool":"POOL","resource":"SHIP","token":5,"holder":"h","ttl_s":120}',
]  # fmt: skip


def test_a_kept_grant_that_is_none_is_no_control(user: As, twin: FlyingShip) -> None:
    alice = user("alice")
    file = _file(twin)
    file.save(Kept(pool="", resource="", token=1, holder="", ttl_s=1.0))
    pool, ship = f"blimp.pilot.{twin.vehicle}".encode(), twin.vehicle.encode()
    for data in NO_GRANTS:
        file.path.write_bytes(data.replace(b"POOL", pool).replace(b"SHIP", ship))
        file.path.chmod(0o600)
        assert alice("disarm") == 0, data  # nobody holds it, so it is everybody's
    take(user, "alice")
    assert alice("disarm") == 0


def test_control_that_cannot_be_kept_is_given_back(user: As, twin: FlyingShip) -> None:
    alice = user("alice")
    directory = _file(twin).path.parent
    directory.parent.mkdir(parents=True)
    directory.write_text("not a directory")
    assert alice("control", "take", "--pilot", "alice") == 2
    assert f"{directory} cannot be made" in alice.err
    assert alice("arm") == 0, alice.err
    assert alice("control", "release") == 0, alice.err
    take(user, "bob")


def test_a_mission_ends_where_control_is_lost_and_the_ship_is_left_to_who_has_it(
    user: As, twin: FlyingShip
) -> None:
    ground = user("bob")
    with VehicleClient(twin.broker.url, twin.vehicle) as anybody:
        assert anybody.send("arm").wait(10.0).state == "SUCCESS"
    take(user, "alice")
    ground = user("bob")
    assert ground("mission", "run", "square") == 7
    assert "alice holds control" in ground.err
    assert "hold was not" not in ground.err
    assert user("alice")("disarm") == 0


def test_a_worker_that_sleeps_between_asking_and_handing_over_moves_nothing(
    twin: FlyingShip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the queue to the flight control: the fence is the last to say no."""
    asked, wake = threading.Event(), threading.Event()
    deliver = twin.mailbox.call

    def sleepy(command: Command, *, timeout_s: float) -> Outcome | None:
        if command.name == "arm":
            asked.set()
            assert wake.wait(20.0)
        return deliver(command, timeout_s=timeout_s)

    monkeypatch.setattr(twin.mailbox, "call", sleepy)
    url = twin.broker.url
    with (
        closing(RedisServer(url)) as link,
        VehicleClient(url, twin.vehicle) as alice,
        VehicleClient(url, twin.vehicle) as bob,
    ):
        pool = pilots(link, twin.vehicle)
        pool.add(twin.vehicle)
        alice.authority = pool.acquire("alice").token
        late = alice.send("arm")
        assert asked.wait(20.0)
        pool.take_away(twin.vehicle)
        bob.authority = pool.acquire("bob").token
        assert bob.send("disarm").wait(10.0).state == "SUCCESS"
        wake.set()
        reply = late.wait(10.0)
        assert (reply.state, reply.kind) == ("REFUSED", "NotInControl")
        assert reply.reason.startswith(
            f"authority {2 * alice.authority} is older than {2 * bob.authority}, the newest seen"
        )
        assert not twin.ship.snapshot().armed
        assert bob.send("arm").wait(10.0).state == "SUCCESS"


def test_bad_options_are_usage(user: As) -> None:
    ground = user("alice")
    assert ground("control", "take", "--for", "601") == 2
    assert ground("control", "take", "--for", "nan") == 2
    assert ground("control", "take", "--pilot", "") == 2
    assert ground("control", "take", "--pilot", "x" * 300) == 2
    assert ground("control", "take", "--pilot", "a\nb") == 2
    assert ground("control") == 2


def _file(twin: FlyingShip) -> KeptControl:
    from blimp.config import ground_config

    return KeptControl(state=ground_config().state, broker=twin.broker.url, vehicle=twin.vehicle)


def _files(twin: FlyingShip, user: As, name: str) -> list[Path]:
    user(name)
    return [_file(twin).path]


def test_one_user_does_not_take_control_by_a_second_name(user: As, twin: FlyingShip) -> None:
    alice = take(user, "alice")
    words = f"alice holds control of {twin.vehicle}, for another "
    for option in ("--dry-run", "--yes"):
        assert alice("control", "take", "--pilot", "bob", option) == 7
        assert words in alice.err
        assert alice.out == ""
    assert user("bob")("control", "take", "--dry-run") == 7
    alice = user("alice")
    assert alice("control", "take") == 0
    assert alice.out.startswith("alice holds control")
    assert alice("control", "take", "--pilot", "bob", "--force", "--yes") == 0
    assert alice.out.startswith("bob holds control")
    assert alice.json("control", "who")[1]["result"]["pilot"] == "bob"
