"""Tasks that workers send by themselves: once at each tick, whatever becomes of a worker."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError
from blimp.queue import TaskApp, Worker, cron, every
from blimp.queue.cli.main import main
from blimp.queue.scheduler import Schedules, Timetable
from blimp.queue.timetable import Missed
from tests.queue.conftest import Silence, WorkerProcess, wait_until, working
from tests.queue.server_view import Look

KILLS = 3


def noted(server: redis.Redis) -> dict[int, set[str]]:
    """Return the ids of the messages that were run, by the tick after theirs."""
    found: dict[int, set[str]] = {}
    lines: list[bytes] = server.lrange("noted", 0, -1)  # type: ignore[assignment]
    for line in lines:
        id, expires_s = line.decode().split()
        found.setdefault(int(expires_s), set()).add(id)
    return found


def test_each_tick_is_sent_once_while_workers_are_killed(
    url: str, server: redis.Redis, start_worker: Callable[..., WorkerProcess]
) -> None:
    """A task that its worker did not survive runs again: its message is the same one."""
    app = "tests.queue.scheduled_app:app"
    workers = [start_worker(url, app=app, name=name) for name in "ab"]
    for number in range(KILLS):
        before = len(noted(server))
        wait_until(lambda before=before: len(noted(server)) > before, "no tick comes")
        workers[number % 2].kill()
        workers[number % 2] = start_worker(url, app=app, name="ab"[number % 2])
    before = len(noted(server))
    wait_until(lambda: len(noted(server)) > before + 1, "no tick comes")
    found = noted(server)
    assert {len(ids) for ids in found.values()} == {1}
    assert sorted(found) == list(range(min(found), max(found) + 1, 3))


@pytest.mark.parametrize(("missed", "sent"), [("latest", 1), ("skip", 0)])
def test_of_missed_ticks_the_newest_is_sent_once_or_none(
    app: TaskApp, look: Look, server: redis.Redis, missed: Missed, sent: int
) -> None:
    now_s = app.broker_clock.now_s()
    # Its newest tick is over a minute old, and the next one more than a minute off.
    apart_s = next(s for s in range(1000, 2000) if 100.0 < now_s % s < s - 100.0)
    schedule = every(apart_s, args=(3,), missed=missed)
    runs: list[int] = []
    app.task(name="seldom", schedule=schedule)(runs.append)
    table, newest_s = Timetable(app), schedule.last_s(now_s)
    server.set(table._key("seldom"), round(1e3 * (newest_s - 5.0 * apart_s)))
    for _ in range(2):  # the second worker finds it sent
        with working(app) as worker:
            wait_until(lambda w=worker: sent_s(w)["seldom"] >= newest_s, "the tick is not seen")
            wait_until(lambda: len(runs) >= sent and look.waiting() == 0, "it is not run")
    assert runs == [3] * sent
    assert table.last_s("seldom") == newest_s - (0.0 if sent else 5.0 * apart_s)


def sent_s(worker: Worker) -> dict[str, float]:
    """Return up to which tick a worker has sent each task."""
    (found,) = (one for one in worker.extensions if isinstance(one, Schedules))
    return defaultdict(float, found._sent_s)


def test_a_tick_or_an_older_one_is_put_no_second_time(app: TaskApp, look: Look) -> None:
    """As several workers do, and one whose clock has gone back."""
    several = [every("5m"), every("5m", args=(1,)), cron("@hourly")]
    table, now_s = Timetable(app), app.broker_clock.now_s()
    app.task(name="often", schedule=several)(lambda *_: None)
    for tick_s in (600.0, 600.0, 300.0, 900.0, 600.0):
        for row in table.rows():
            table.send(row, tick_s=tick_s, now_s=now_s)
    assert look.waiting() == 2 * len(several)
    names = [row.name for row in table.rows()]
    assert names == ["often every 300 s", "often every 300 s [[1],{}]", "often cron 0 * * * * UTC"]
    # They have their slots by their names, wherever they stand, and in another worker.
    app.tasks.clear()
    app.task(name="often", schedule=several[::-1])(lambda *_: None)
    assert {table.last_s(row.name) for row in table.rows()} == {900.0}
    with pytest.raises(ConfigError, match="must be one, or several that differ"):
        app.task(name="twice", schedule=[every("5m"), every(300)])


def test_it_is_listed_paused_resumed_and_run_from_the_command_line(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app.task(name="hourly", schedule=every("1h"))(lambda: None)
    app.task(name="plain")(lambda: None)
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: app)

    def run(*words: str) -> str:
        assert main(["schedules", *words, "-A", "here:app"]) == 0
        return capsys.readouterr().out

    assert run("list").startswith("hourly  every 3600 s  last -  next 20")
    assert run("pause", "hourly") == "hourly is paused\n"
    assert run("list").endswith("  paused\n")
    with working(app) as worker:
        table = Timetable(worker.app)
        wait_until(lambda: table.last_s("hourly"), "the worker does not begin")
    assert run("resume", "hourly") == "hourly is sent from its next tick on\n"
    assert "  next 20" in run("list")
    assert run("run", "hourly").startswith("hourly is sent as ")
    app.task(name="both", schedule=["@daily", every(timedelta(hours=2))])(lambda: None)
    run("pause", "both")
    run("resume", "both every 7200 s")
    ends = {line.split("  ")[0]: line.endswith("  paused") for line in run("list").splitlines()}
    assert ends == {"hourly": False, "both cron 0 0 * * * UTC": True, "both every 7200 s": False}
    assert main(["schedules", "run", "both", "-A", "here:app"]) == 2
    assert "has several schedules: say which: both cron" in capsys.readouterr().err
    assert look.waiting() == 1
    assert main(["schedules", "run", "plain", "-A", "here:app"]) == 2
    assert "no schedule of task 'plain'; there are: hourly" in capsys.readouterr().err


def test_a_paused_schedule_is_not_sent_and_begins_with_its_next_tick(
    app: TaskApp, look: Look
) -> None:
    seconds = every(1.0)
    app.task(name="often", schedule=seconds)(lambda: None)
    table = Timetable(app)
    table.pause("often")
    with working(app) as worker:
        wait_until(lambda: "often" in sent_s(worker), "the worker does not begin")
        first_s = sent_s(worker)["often"]
        wait_until(lambda: sent_s(worker)["often"] > first_s + 1.0, "no tick passes")
        assert (table.last_s("often") or 0.0) <= first_s
        table.resume("often")
        resumed_s = table.last_s("often")
        assert resumed_s is not None
        wait_until(lambda: (table.last_s("often") or 0.0) > resumed_s, "no tick is sent")


def test_a_broker_that_keeps_no_stamps_is_refused() -> None:
    with TaskApp("a", broker="memory://") as app:
        app.task(name="often", schedule=every("5m"))(lambda: None)
        with pytest.raises(ConfigError, match="schedules need a Redis or Valkey broker"):
            Worker(app=app, name="w", log=Silence()).run()


def test_a_workers_modules_are_no_more_where_no_task_has_a_schedule(app: TaskApp) -> None:
    app.task(name="plain")(lambda: None)
    assert not any("scheduler" in str(one) for one in app.extensions)
    first: Any = app.task(name="often", schedule=every("5m"))(lambda: None)
    app.task(name="seldom", schedule=every("5h"))(lambda: None)
    assert sum("scheduler" in str(one) for one in app.extensions) == 1
    assert first.options.schedule == every("5m")


def test_a_schedule_that_cannot_be_sent_holds_up_no_other(app: TaskApp) -> None:
    log = Silence()
    app.task(name="spoilt", schedule=every(1.0, args=(object(),)))(lambda _: None)
    app.task(name="good", schedule=every(1.0))(lambda: None)
    table = Timetable(app)
    with working(app, log=log):
        wait_until(lambda: table.last_s("good"), "the worker does not begin")
        first_s = table.last_s("good") or 0.0
        wait_until(lambda: (table.last_s("good") or 0.0) > first_s, "the other is not sent")
        wait_until(lambda: log.events("schedule not sent"), "it is not said")
    assert log.events("schedule not sent")[0]["task"] == "spoilt"


def test_a_paused_task_that_has_several_schedules_now_stays_paused(url: str) -> None:
    with TaskApp("tests", broker=url) as before, TaskApp("tests", broker=url) as after:
        before.task(name="tick", schedule=every("1h"))(lambda: None)
        after.task(name="tick", schedule=[every("1h"), every("2h")])(lambda: None)
        Timetable(before).pause("tick")
        table = Timetable(after)
        assert [one.is_paused for one in table.states()] == [True, True]
        table.resume("tick every 3600 s")
        assert [one.is_paused for one in table.states()] == [False, True]
        table.resume("tick")
        assert [one.is_paused for one in table.states()] == [False, False]
