"""Going back to the last release, upgrading it, and removing it, in a box, as docs/pi.md and
docs/upgrade.md say.

`make box-test`. The tests are one story, in their order. What they found is in docs/box.md.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from blimp.link.paths import LOCAL_BROKER
from tests.box.expectations import ALL_ACTIVE
from tests.box.machine import Box
from tests.box.page import PAGE, Laptop, blocks, type_on_the_box
from tests.box.world import DROP_IN, OutsideWorld, installed, unwire
from tests.interop.test_last_release import BEFORE_THE_FIRST_TAG, at_rest, find_last_release
from tests.test_shell_blocks import typed

pytestmark = pytest.mark.timeout(10_800)

GROUND = f"ground --broker '{LOCAL_BROKER}' --vehicle twin --yes --json"
SPEED = f"{GROUND} param limits.speed_mps"
# What is named so, or belongs to the ship's user, on the card and below /run.
FIND = (
    "sudo find / /run -xdev \\( -path /proc -o -path /sys -o -path /run/systemd \\) -prune -o "
    "\\( -name '*blimp*' -o -lname '*/blimp/*' -o -user blimp -o -group blimp \\) -prune -print "
    "2>/dev/null | sort -u"
)
NOBODYS = "sudo find / /run -xdev \\( -nouser -o -nogroup \\) -print 2>/dev/null"
# Sends two commands to a ship whose worker is stopped: a question that may wait, and a push of a
# motor, which is too old after `ttl_s`. Runs in either version.
_SEND = f"""
from blimp.tasks.client import VehicleClient
with VehicleClient({LOCAL_BROKER!r}, "twin") as client:
    for name, arguments, ttl_s in (("sensor", {{"name": "power"}}, 36000.0),
                                   ("motor", {{"name": "left", "percent": 20.0}}, 5.0)):
        with client.send(name, arguments, ttl_s=ttl_s) as pending:
            print(pending.id)
"""


class Ship(NamedTuple):
    box: Box
    world: OutsideWorld

    def type(self, begin: str) -> None:
        """Type the block of docs/pi.md that begins so."""
        block = next(text for _, text in blocks() if text.strip().startswith(begin))
        for line in typed(block):
            type_on_the_box(self.box, line)

    def wait_until_it_answers(self) -> None:
        self.box.write("/tmp/answers", f"{ALL_ACTIVE} && {GROUND} ping\n")
        self.wait_for("bash /tmp/answers")

    def wait_for(self, command: str) -> None:
        self.box.ssh(f'timeout 300 bash -c "until {command} >/dev/null 2>&1; do sleep 1; done"')

    def is_at_rest(self) -> bool:
        with self.world.ask() as world:
            return at_rest(world)

    def asks(self, command: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.box.says(f"{GROUND} {command}"))
        return found

    @property
    def speed_mps(self) -> float:
        return float(self.asks("param limits.speed_mps")["result"]["parameters"][0]["value"])

    @property
    def program(self) -> str:
        """Return the one package that is installed, and its version."""
        listed = "/opt/blimp/.venv/bin/pip list --format=freeze | grep -i ^blimp"
        (found,) = self.box.says(listed).splitlines()
        return found

    def kept(self) -> str:
        """Return the digests of what no change of the program may change."""
        files = "/etc/blimp /var/lib/blimp/*.json /var/lib/blimp/logs"
        return self.box.says(f"sudo sh -c 'find {files} -type f | sort | xargs sha256sum'")


@pytest.fixture(scope="module")
def ship() -> Iterator[Ship]:
    with installed() as (box, world):
        box.boot(world_port=world.port)
        with Laptop(box, box.directory) as laptop:
            laptop.send_the_program()
        found = Ship(box, world)
        found.wait_until_it_answers()
        yield found


def install(ship: Ship, commit: str, *, instead_of: str, extras: str) -> None:
    """Put `commit` in place of what is installed in /opt/blimp, and start its units."""
    ship.box.ssh("sudo systemctl stop blimp.target")
    ship.box.ssh(f"cd /opt/blimp && sudo git reset -q --hard {commit} && sudo rm -r build")
    if instead_of:  # of another name
        ship.box.ssh(f"sudo /opt/blimp/.venv/bin/pip uninstall -q -y {instead_of}")
    ship.box.ssh(f"cd /opt/blimp && sudo .venv/bin/pip install -q {extras}")
    ship.box.ssh("sudo blimp install-service")


def test_back_to_the_last_release_and_all_is_there(ship: Ship) -> None:
    box, last = ship.box, find_last_release()
    ship.wait_for(f"{GROUND} arm")
    box.ssh(f"{GROUND} disarm && {SPEED} 0.37 && sudo systemctl stop blimp.target")
    was, new = ship.kept(), ship.program
    install(ship, last, instead_of="blimp-autopilot" if last == BEFORE_THE_FIRST_TAG else "",
            extras="'.[demo,bench]'")  # fmt: skip
    assert ship.program != new
    ship.wait_until_it_answers()
    assert ship.is_at_rest()
    assert ship.speed_mps == 0.37
    assert set(was.splitlines()) <= set(ship.kept().splitlines())


def test_an_upgrade_of_the_last_release_and_all_is_there(ship: Ship) -> None:
    box, last = ship.box, find_last_release()
    # Its own airframe and configuration, as somebody has who never had this version.
    box.ssh("sudo cp /opt/blimp/blimp/airframes/twin.toml /etc/blimp/mine.toml")
    box.ssh("sudo blimp init --force --airframe /etc/blimp/mine.toml")
    box.ssh("sudo blimp install-service")
    ship.wait_until_it_answers()
    ship.wait_for(f"{GROUND} arm")
    box.ssh(f"{GROUND} disarm && {SPEED} 0.41")
    earlier = ship.asks("ping")["id"]
    box.ssh("sudo systemctl stop blimp-worker")
    box.write("/tmp/send.py", _SEND)
    question, push = box.says("/opt/blimp/.venv/bin/python /tmp/send.py").split()
    box.ssh("sudo systemctl stop blimp.target")
    was, old = ship.kept(), ship.program
    if last == BEFORE_THE_FIRST_TAG:
        box.ssh("sudo /opt/blimp/.venv/bin/pip uninstall -q -y blimp")
    ship.type("sudo systemctl stop blimp.target")
    assert ship.program != old
    ship.wait_until_it_answers()
    assert ship.is_at_rest()
    assert ship.speed_mps == 0.41
    assert set(was.splitlines()) <= set(ship.kept().splitlines())
    for log in box.says("sudo find /var/lib/blimp/logs -name '*.mcap'").split():
        box.ssh(f"sudo blimp log info {log}")
    assert ship.asks(f"result {earlier}")["state"] == "SUCCESS"
    assert ship.asks(f"result {question}")["state"] == "SUCCESS"
    late = json.loads(box.ssh(f"{GROUND} result {push}", check=False).stdout)
    assert late["state"] == "EXPIRED", late


def test_what_stays_after_uninstall_service_is_what_the_page_lists(ship: Ship) -> None:
    ship.box.ssh("sudo blimp uninstall-service && sudo systemctl stop box-world")
    table = PAGE.read_text("utf-8").partition("| stays | it is |\n")[2].partition("\n\n")[0]
    listed = {path for row in table.splitlines() for path in re.findall(r"`(/[^`]+)`", row)}
    assert set(ship.box.says(FIND).splitlines()) == {*listed, DROP_IN}
    assert ship.box.ssh("pgrep -u blimp", check=False).stdout == ""
    assert ship.box.says("systemctl list-units --all --no-legend 'blimp*'") == ""


def test_installed_again_it_is_the_same_ship(ship: Ship) -> None:
    ship.box.ssh("sudo blimp install-service")
    ship.wait_until_it_answers()
    assert ship.speed_mps == 0.41


def test_what_is_removed_leaves_nothing(ship: Ship) -> None:
    ship.box.ssh("sudo blimp page on && sudo systemctl stop blimp.target")
    unwire(ship.box)
    ship.type("sudo blimp uninstall-service")
    assert ship.box.says(FIND) == ""
    assert ship.box.says(NOBODYS) == ""
    assert ship.box.ssh("getent passwd blimp || getent group blimp", check=False).stdout == ""
