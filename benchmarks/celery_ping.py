"""One Celery worker, and the time until it answers `inspect ping`.

    python -m benchmarks.celery_ping URL COUNT [TRANSPORT]

Prints the median in ms. Run by celery_suite.py in an environment that has Celery.
"""

import os
import statistics
import subprocess
import sys
import time
from typing import Any

import celery

URL, TRANSPORT = "PING_URL", "PING_TRANSPORT"

app: Any = celery.Celery("celery_ping", broker=os.environ.get(URL), backend=os.environ.get(URL))
if os.environ.get(TRANSPORT):
    app.conf.broker_transport = os.environ[TRANSPORT]


def main() -> None:
    url, count, *transport = sys.argv[1:]
    app.conf.broker_url = app.conf.result_backend = url
    app.conf.broker_transport = "".join(transport) or None
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "benchmarks.celery_ping",
            "worker",
            "--concurrency",
            "2",
        ],
        env=os.environ | {URL: url, TRANSPORT: "".join(transport)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        inspect = app.control.inspect(timeout=10.0, limit=1)
        for _ in range(3):  # the first may be lost on a worker that only starts
            inspect.ping()
        took_ms = []
        for _ in range(int(count)):
            began_s = time.perf_counter()
            assert inspect.ping(), "no answer"
            took_ms.append((time.perf_counter() - began_s) * 1000.0)
        print(statistics.median(took_ms))
    finally:
        worker.terminate()
        worker.wait(30.0)


if __name__ == "__main__":
    main()
