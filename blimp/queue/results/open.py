"""The keeper of results for an app, whichever its `result_backend` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.clock import Clock
    from blimp.queue.app import TaskApp
    from blimp.queue.redis.server import RedisServer
    from blimp.queue.results.base import ResultBackend
    from blimp.queue.results.options import ResultOptions


def open_database(
    url: str,
    *,
    clock: Clock,
    options: ResultOptions,
    limit_bytes: int,
    timeout_s: float,
    notify_server: RedisServer | None,
) -> ResultBackend:
    """Return results in the database at `url`. Raises ConfigError, also without SQLAlchemy."""
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        raise ConfigError("result_backend: a database needs: pip install 'blimp[sql]'") from None
    from blimp.queue.results.sql.backend import SqlResults

    return SqlResults(
        url=url,
        clock=clock,
        options=options,
        limit_bytes=limit_bytes,
        timeout_s=timeout_s,
        notify_server=notify_server,
    )


def prepare_results(app: TaskApp, *, log: Any) -> tuple[Callable[[bool], None], ...]:
    """Do what a starting worker does for results; return what its pulse is to call.

    Raises TableMismatch. A database that is away is waited for with the first result.
    """
    results = app.results
    if results is None or not results.commits:
        return ()
    if app.result_options.database_create_tables_at_setup:
        try:
            results.prepare()
        except ConfigError:
            raise
        except LinkError as error:
            log.warning("no results yet", reason=str(error))
    if not results.keep_s:
        return ()
    from blimp.queue.results.sql.cleanup import Cleaning

    return (Cleaning(results=results, clock=app.clock, log=log),)
