"""A short campaign of `make releases`."""

import json
import sys

from tests.forked import ran


def test_no_resource_is_lost_or_doubled_where_processes_are_killed() -> None:
    words = "-m benchmarks.releases --releases 200 --kills 6 --processes 4 --seed 4"
    done = ran([sys.executable, *words.split()], timeout=60.0)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["double_released"] >= 200
    assert report["kills"] >= 1
    assert report["snapshots"] > 3
