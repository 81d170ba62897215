"""`python -m tests.faults.fuzz`: a million inputs for each reader of what comes from outside.

    python -m tests.faults.fuzz --target mailbox --inputs 1000000 --json

Nothing may move, nothing may die: no exception escapes but a declared refusal, no output is
driven, no input takes a second of this process's time, and a worker answers after each batch.
Targets: fuzz_targets.py. What is read in this process is fuzzed by atheris, guided by coverage;
what a whole worker reads, and where there is no atheris, by mutation of what is valid. `--seconds`
ends it earlier, with what it has reached.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.fuzz_target import Target

MAX_INPUT_S = 1.0  # of processor time, of one input and the cycle of the ship behind it
MAX_BYTES = 8192
NO_LIMIT_S = 10**6  # to libFuzzer, whose limit counts the time of other processes too, and 0 is 0 s
ENGINES = ("atheris", "mutate")


class Run:
    """Feeds a target, counts, and keeps the worst."""

    def __init__(self, target: Target, *, inputs: int, seconds: float) -> None:
        self._target = target
        self._most = inputs
        self._seconds = seconds
        self.inputs = 0
        self.slowest_s = 0.0
        self.failure: dict[str, str] | None = None
        self._began_s = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """Whether nothing is wrong, and there is more to be fed, and time for it."""
        took_s = time.monotonic() - self._began_s
        return self.failure is None and self.inputs < self._most and took_s < self._seconds

    def feed(self, data: bytes) -> None:
        began_s = time.thread_time()
        try:
            self._target.feed(data)
        except Exception as error:
            self._failed(data, error)
            return
        took_s = time.thread_time() - began_s
        self.slowest_s = max(self.slowest_s, took_s)
        self.inputs += 1
        if took_s > MAX_INPUT_S:
            self._failed(data, TimeoutError(f"an input took {took_s:.2f} s"))

    def finish(self) -> None:
        try:
            self._target.finish()
        except Exception as error:
            self._failed(b"", error)

    def _failed(self, data: bytes, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        self.failure = {"error": what, "input": base64.b64encode(data).decode()}

    def figures(self) -> dict[str, Any]:
        took_s = time.monotonic() - self._began_s
        return {
            "inputs": self.inputs,
            "ok": self.failure is None,
            "seconds": round(took_s, 1),
            "inputs_per_s": round(self.inputs / max(took_s, 1e-9)),
            "slowest_input_ms": round(1e3 * self.slowest_s, 1),
            "failure": self.failure,
        }


def mutate(name: str, *, inputs: int, seed: int, seconds: float = math.inf) -> dict[str, Any]:
    """Feed `inputs` mutations of the target's seeds; the same for the same seed."""
    from tests.faults.fuzz_targets import TARGETS, mutated

    chance = random.Random(seed)
    target = TARGETS[name]()
    try:
        run = Run(target, inputs=inputs, seconds=seconds)
        for data in target.seeds:
            if run.goes_on:
                run.feed(data)
        while run.goes_on:
            run.feed(target.change(chance, mutated)[:MAX_BYTES])
        if run.failure is None:
            run.finish()
        return run.figures()
    finally:
        target.close()


def guide(name: str, *, inputs: int, seed: int, seconds: float, report: Any) -> None:
    """Feed what atheris finds by coverage. Ends the process with `report(figures)`."""
    import atheris

    from tests.faults import fuzz_watched

    with atheris.instrument_imports(include=list(fuzz_watched.WATCHED[name])):
        from tests.faults.fuzz_targets import TARGETS, mutated

        target = TARGETS[name]()
    run = Run(target, inputs=inputs, seconds=seconds)
    chance = random.Random(seed)

    def one(data: bytes) -> None:
        run.feed(data)
        if run.goes_on:
            return
        if run.failure is None:
            run.finish()
        status = report(run.figures())
        target.close()
        sys.stdout.flush()
        os._exit(status)

    def change(data: bytes, max_size: int, _: int) -> bytes:
        """Half by structure, which bytes alone seldom keep."""
        if chance.random() < 0.5:
            if chance.random() < 0.3:
                return target.change(chance, mutated)[:max_size]
            return mutated(chance, [data])[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    import tempfile

    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        for number, data in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        options = [
            f"-seed={seed}", f"-max_len={MAX_BYTES}", f"-timeout={NO_LIMIT_S}", "-verbosity=0",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], corpus, *options], one, custom_mutator=change)
        atheris.Fuzz()


def main() -> int:
    from tests.faults.fuzz_watched import NAMES, WATCHED

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--target", choices=NAMES, required=True)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which it ends")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--engine", choices=ENGINES, help="default: atheris, if it can and is there"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="a JSON file to keep the figures in, by target")
    options = parser.parse_args()
    engine = options.engine or _engine(options.target in WATCHED)
    command = f"python -m tests.faults.fuzz --target {options.target} --inputs {options.inputs}"
    limits = {"inputs": options.inputs, "seconds": options.seconds, "seed": options.seed}

    def report(figures: dict[str, Any]) -> int:
        found = {"command": command, "engine": engine, "seed": options.seed, **figures}
        if options.json:
            print(json.dumps(found), flush=True)
        else:
            print("\n".join(f"{key}: {value}" for key, value in found.items()), flush=True)
        if options.out is not None and figures["ok"]:
            kept = json.loads(options.out.read_text()) if options.out.exists() else {}
            kept[options.target] = found
            options.out.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
        return 0 if figures["ok"] else 1

    if engine == "atheris":
        guide(options.target, **limits, report=report)
    return report(mutate(options.target, **limits))


def _engine(is_watched: bool) -> str:
    from importlib.util import find_spec

    return "atheris" if is_watched and find_spec("atheris") else "mutate"


if __name__ == "__main__":
    sys.exit(main())
