"""A slice of the boundaries, one of each kind of command; all of them are `make faults`."""

from tests.faults.run import NEVER, TIMED, range_of_runs
from tests.faults.shot import Point

SERVER_EVERY = 3  # of the runs; each costs a start of the server


def test_one_boundary_of_each_kind_of_command_holds() -> None:
    with range_of_runs() as runs:
        commands = runs.number()
        kinds = sorted({command.kind for command in commands})
        assert {"take", "complete", "renew", "release", "bury"} <= {*kinds}
        failed = []
        for number, kind in enumerate(kinds):
            alike = [one for one in commands if one.kind == kind]
            command = alike[len(alike) // 2]
            point = Point(
                number=commands.index(command) + 1,
                command=command,
                side="after" if number % 2 else "before",
                target="worker" if number % SERVER_EVERY else "server",
            )
            complaints = runs.run(point)
            if complaints and not (kind in TIMED and complaints[0] == NEVER):
                failed.append(f"{point}: {complaints[:-1]}; again: {point.replay}")
        assert not failed, "\n".join(failed)
