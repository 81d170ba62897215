"""Tasks that fail in ways that are hard to report, in a thread, a loop and a process."""

import time
from typing import Any

from blimp.errors import Interrupted, Refused, Reject, Replace, Retry
from blimp.queue import TaskApp, TaskContext, signature
from tests.queue.killed_app import BROKER, DIRECTORY, RESULTS, TRANSPORT

app = TaskApp("failing", broker=BROKER, result_backend=RESULTS, transport=TRANSPORT)

LATIN1 = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
DEEP: list[Any] = []
for _ in range(398):
    DEEP = [DEEP]


class NoStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no str")

    __repr__ = __str__


class ExitsInStr(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class WrongRepr:
    def __repr__(self) -> str:
        return LATIN1


class NoNotes(Exception):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no notes")


class NoArgs(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no args")


def noted() -> Exception:
    error = ValueError("it is noted")
    error.add_note(LATIN1)
    return error


def caused() -> Exception:
    error = ValueError("it has a cause")
    error.__cause__ = NoStr(LATIN1)
    return error


def several() -> BaseException:
    group: BaseException = ExceptionGroup("two", [ValueError(LATIN1), NoStr()])
    for _ in range(3):
        group = BaseExceptionGroup("more", [group])
    return group


ERRORS: dict[str, Any] = {
    "latin-1": lambda: ValueError(f"cannot parse {LATIN1}"),
    "latin-1 file": lambda: FileNotFoundError(2, "No such file", LATIN1),
    "latin-1 in a list": lambda: ValueError([LATIN1]),
    "bytes": lambda: ValueError(b"\xe9"),
    "zero": lambda: ValueError("a\0b"),
    "note": noted,
    "no notes": NoNotes,
    "cause": caused,
    "several": several,
    "no str": NoStr,
    "exits in str": ExitsInStr,
    "no repr": lambda: ValueError(NoRepr()),
    "wrong repr": lambda: ValueError(WrongRepr()),
    "no args": NoArgs,
    "deep": lambda: ValueError(DEEP),
    "long number": lambda: ValueError(10**5000),
    "large number": lambda: ValueError(10**400),
    "nan": lambda: ValueError(float("nan")),
    "syntax": lambda: SyntaxError("bad", ("f", "first", object(), 3)),  # type: ignore[arg-type]
    "large": lambda: ValueError("x" * 2_000_000 + "end"),
    "large words": lambda: ValueError("é\x01" * 1_000_000),
    "large argument": lambda: ValueError("first", {"x": list(range(500_000))}),
    "many arguments": lambda: ValueError(*range(500_000)),
    "refused": lambda: Refused(f"no {LATIN1}"),
    "refused at length": lambda: Refused("no" * 1_000_000),
    "interrupted": lambda: Interrupted(LATIN1),
    "reject": lambda: Reject(f"no {LATIN1}"),
    "reject without str": lambda: Reject(NoStr()),  # type: ignore[arg-type]
    "reject at length": lambda: Reject("no" * 1_000_000),
}  # fmt: skip

AGAIN: dict[str, Any] = {
    "latin-1": lambda: ValueError(LATIN1),
    "no str": NoStr,
    "large": lambda: ValueError("x" * 2_000_000),
}


def note(context: TaskContext) -> None:
    with (DIRECTORY / f"{context.id}.runs").open("a") as marks:
        marks.write("run\n")


def fail(context: TaskContext, kind: str) -> None:
    note(context)
    raise ERRORS[kind]()


def retry(context: TaskContext, kind: str) -> int:
    """Retry with an exception, by itself by a raised one, or by one that is raised bare."""
    note(context)
    how, _, kind = kind.partition(": ")
    error = AGAIN[kind]()
    if context.message.retries < 1:
        if how == "retry":
            context.retry(exc=error, countdown=0.0)
        if how == "raise Retry":
            raise Retry(error, countdown_s=0.0)
        raise error
    return context.message.retries


def wait(context: TaskContext, countdown: Any) -> None:
    note(context)
    context.retry(countdown=float(countdown) if countdown in ("nan", "inf") else countdown)


async def fail_in_loop(context: TaskContext, kind: str) -> None:
    fail(context, kind)


async def retry_in_loop(context: TaskContext, kind: str) -> int:
    return retry(context, kind)


options: Any = {"bind": True, "max_retries": 1}
again: Any = options | {"autoretry_for": (ValueError, NoStr), "retry_backoff": False}
PLACES: tuple[tuple[str, Any, Any, Any], ...] = (
    ("thread", {}, fail, retry),
    ("loop", {}, fail_in_loop, retry_in_loop),
    ("process", {"cpu_bound": True}, fail, retry),
)
for place, where, fails, retries in PLACES:
    app.task(name=f"{place}.fail", **options, **where)(fails)
    app.task(name=f"{place}.retry", **again, **where)(retries)
    if place != "loop":
        app.task(name=f"{place}.wait", **options, **where)(wait)


@app.task(name="heard")
def heard(*_: Any) -> str:
    return "heard"


@app.task(name="process.replaced", bind=True, max_retries=1, cpu_bound=True)
def replaced(context: TaskContext, how: str) -> None:
    """Be replaced by what no channel takes."""
    note(context)
    wrong: Any = {"object": object(), "latin-1": LATIN1, "number": 2**2000, "key": {(1, 2): 3}}
    raise Replace({"task": "heard", "args": [wrong[how]]})


@app.task(name="process.progress", bind=True, max_retries=1, cpu_bound=True)
def progress(context: TaskContext, kind: str) -> bool:
    note(context)
    details: Any = {
        "latin-1": LATIN1,
        "large": "x" * 2_000_000,
        "object": object(),
        "number": 2**2000,
    }
    return context.progress(0.5, details=details[kind])


@app.task(name="process.waits", cpu_bound=True)
def waits() -> Any:
    return app.result("x").get(timeout=60.0)


def retried(context: TaskContext, number: int = 1) -> dict[str, Any]:
    if context.retries == 0:
        context.retry(
            args=(2,), countdown=0.0, priority=3, expires=500.0, ttl_s=900.0, soft_time_limit=30.0,
            headers={"blimp_b": "2"}, link=signature("linked", task_id="linked"),
        )  # fmt: skip
    message = context.message
    return {
        "retries": context.retries,
        "args": [number],
        "priority": message.priority,
        "ttl_s": message.ttl_s,
        "expires_in_s": (message.expires_s or 0.0) - time.time(),
        "timelimit": list(message.timelimit),
        "headers": {name: message.headers.get(name) for name in ("blimp_a", "blimp_b")},
    }


app.task(name="retried", bind=True)(retried)
app.task(name="retried.in.process", bind=True, cpu_bound=True)(retried)


@app.task(name="linked")
def linked(*args: Any) -> list[Any]:
    return list(args)
