"""One Celery worker, and the time until it answers `inspect ping`.

    python -m benchmarks.celery_ping URL COUNT [TRANSPORT] [--no-worker]

Prints the median in ms. celery_suite.py and remote_ping.py run it in an environment that has
Celery. --no-worker: a worker runs already.
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


def start(url: str, transport: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
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
        env=os.environ | {URL: url, TRANSPORT: transport},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    url, count, *transport = [word for word in sys.argv[1:] if word != "--no-worker"]
    app.conf.broker_url = app.conf.result_backend = url
    app.conf.broker_transport = "".join(transport) or None
    worker = None if "--no-worker" in sys.argv else start(url, "".join(transport))
    try:
        inspect = app.control.inspect(timeout=10.0, limit=1)
        for _ in range(3):  # the first may be lost while the worker starts
            inspect.ping()
        took_ms = []
        for _ in range(int(count)):
            began_s = time.perf_counter()
            assert inspect.ping(), "no answer"
            took_ms.append((time.perf_counter() - began_s) * 1000.0)
        print(statistics.median(took_ms))
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait(30.0)


if __name__ == "__main__":
    main()
