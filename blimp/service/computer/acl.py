"""`blimp broker acl`: the users of a Valkey or Redis that a ship and its ground share.

Each may do what its part needs, on the keys of its ships: ground sends commands and reads what
became of them, vehicle runs them, viewer reads telemetry.
"""

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from blimp.config import vehicle_name
from blimp.tasks.client import photo_channel, photo_turn, vehicle_queue
from blimp.tasks.pilot_link import heartbeat_key

PASSWORD_BYTES = 24
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

# A category, because a server refuses a file that names a command which it does not have: Redis
# 7.0 lacks CLIENT SETINFO, which redis-py sends. What the category has of other connections goes.
_CONNECT = "+@connection +time -@admin -client|tracking"
# What scripts call counts as the user's own: EVALSHA gives nobody more than the rest of the line.
_DATA = "+@read +@write +@stream +@hash +@sortedset +@set +@string +@scripting +@transaction"
_NEVER = "-@admin -flushall -flushdb -keys -migrate -restore -sort -swapdb -function -script|flush"
_RESULTS = "celery-task-meta-*"
_SEEN = ("telemetry", "timeline", "picture")  # of a ship, by who watches it


@app.callback()
def _group() -> None:
    """Keep `acl` a command of its own."""


@app.command()
def acl(
    vehicle: Annotated[
        list[str] | None, typer.Option("--vehicle", help="A ship's name; may be repeated.")
    ] = None,
) -> None:
    """Print the users of the broker, with new passwords, as lines of its ACL file.

    Users are ground, viewer and vehicle; several ships have the users vehicle-NAME.

    \b
    Examples:
      blimp broker acl --vehicle twin > users.acl   # aclfile users.acl in the server's settings
      blimp worker --broker rediss://vehicle:PASSWORD@broker.example
    """
    names = [vehicle_name(name, where="--vehicle") for name in vehicle or ["twin"]]
    print("user default off")
    for user, rules in users(names).items():
        print(f"user {user} on >{secrets.token_urlsafe(PASSWORD_BYTES)} {rules}")


def users(vehicles: Sequence[str]) -> dict[str, str]:
    """Return the rules of each user, without a password. They need Redis 7 or any Valkey."""
    several = len(vehicles) > 1
    found = {
        "ground": _ground(vehicles),
        "viewer": f"{_CONNECT} +scan +exists +xread +xrevrange +multi +exec "
        + _keys("%R~", [f"blimp:{what}:{name}" for name in vehicles for what in _SEEN]),
    }
    for name in vehicles:
        found[f"vehicle-{name}" if several else "vehicle"] = _vehicle(name)
    return found


def _ground(vehicles: Sequence[str]) -> str:
    """It may forge neither telemetry nor results: it reads them, and publishes to no watcher."""
    own = ["blimp:sender:*", "blimp:published:*", "blimp:pool:{blimp.ships}:*"]
    seen = [_RESULTS]
    for name in vehicles:
        queue = vehicle_queue(name)
        own += [f"blimp:queue:{queue}[:.]*", f"blimp:exchange:{queue}", f"blimp:exchange:{queue}.*"]
        own += [f"blimp:fanout:{queue}.*", f"blimp:coalesce:{queue}:*", f"blimp:revoked:{queue}*"]
        own += [f"blimp:pool:{{{photo_turn(name)}}}:*"]
        own += [f"blimp:pool:{{blimp.pilot.{name}}}:*", heartbeat_key(name), f"blimp:wish:{name}"]
        seen += [
            *(f"blimp:{what}:{name}" for what in _SEEN),
            f"blimp.worker.{queue}.*",
            f"blimp.fleet.{queue}",
        ]
    # Who gives control back wakes who waits for it; an emergency stop needs no write.
    photos = _keys("&", [photo_channel(name, "*") for name in vehicles])
    stops = _keys("&", [f"blimp:fanout:{vehicle_queue(name)}.*" for name in vehicles])
    wakes = f"(+publish &blimp:pool:* {stops})"
    rules = f"{_CONNECT} {_DATA} +info +scan +subscribe +unsubscribe -publish {_NEVER}"
    channels = f"&{_RESULTS} &blimp:pool:* {photos}"
    return f"{rules} {_keys('~', own)} {_keys('%R~', seen)} {channels} {wakes}"


def _vehicle(name: str) -> str:
    queue = vehicle_queue(name)
    own = [
        f"blimp:queue:{queue}[:.]*", f"blimp:exchange:{queue}*", f"blimp:fanout:{queue}.*",
        f"blimp:coalesce:{queue}:*", f"blimp:revoked:{queue}*", "blimp:queue::*",
        f"blimp.worker.{queue}.*", f"blimp.fleet.{queue}",
        "blimp:ended:*", "blimp:sender:*", "blimp:published:*", "blimp:steps:*", "blimp-began-*",
        "blimp:results:failed", _RESULTS, "celery-taskset-meta-*",
        *(f"blimp:{what}:{name}" for what in _SEEN),
        "blimp:pool:{blimp.ships}:*", f"blimp:pool:{{blimp.pilot.{name}}}:*",
        heartbeat_key(name), f"blimp:wish:{name}",
        *(f"blimp:{part}:*celery.pidbox*" for part in ("exchange", "fanout", "queue")),
    ]  # fmt: skip
    rules = f"{_CONNECT} {_DATA} +@pubsub +info {_NEVER} +client|unblock"
    channels = [
        _RESULTS, "blimp:pool:*", photo_channel(name, "*"), f"blimp:fanout:{queue}.*",
        "blimp:fanout:*celery.pidbox*",
    ]  # fmt: skip
    return f"{rules} {_keys('~', own)} {_keys('&', channels)}"


def _keys(kind: str, patterns: Sequence[str]) -> str:
    return " ".join(kind + pattern for pattern in patterns)
