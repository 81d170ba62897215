"""A canvas: measure at five places side by side, then one task makes the report of all.

First, in another terminal: `python -m blimp.queue worker -A ground_station.examples.canvas:app`.
"""

import os

from blimp.queue import TaskApp, chord

URL = os.environ.get("BROKER_URL", "redis://localhost/0")

app = TaskApp("survey", broker=URL, result_backend=URL)


@app.task(name="survey.measure", idempotent=True)
def measure(place: int) -> float:
    return 20.0 + place  # yours asks a sensor: degrees Celsius


@app.task(name="survey.mean", idempotent=True)
def mean(celsius: list[float]) -> float:
    return sum(celsius) / len(celsius)


@app.task(name="survey.report", idempotent=True)
def report(celsius: float, hall: str) -> str:
    return f"{hall}: {celsius:.1f} degrees"


def main() -> None:
    canvas = chord([measure.s(place) for place in range(5)], mean.s()) | report.s("the hall")
    print(canvas.delay().get(timeout=60))


if __name__ == "__main__":
    main()
