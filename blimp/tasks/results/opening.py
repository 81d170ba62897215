"""The keeper of results for an app, whichever its `result_backend` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.clock import Clock
    from blimp.tasks.app import TaskApp
    from blimp.tasks.results.backend import ResultBackend
    from blimp.tasks.results.options import ResultOptions
    from blimp.tasks.results.redis import RedisResults


def open_database(
    url: str,
    *,
    clock: Clock,
    options: ResultOptions,
    limit_bytes: int,
    timeout_s: float,
    told_by: RedisResults | None,
) -> ResultBackend:
    """Return results in the database at `url`. Raises ConfigError, also without SQLAlchemy."""
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        raise ConfigError("result_backend: a database needs: pip install 'blimp[sql]'") from None
    from blimp.tasks.results.sql.results import SqlResults

    return SqlResults(
        url=url,
        clock=clock,
        options=options,
        limit_bytes=limit_bytes,
        timeout_s=timeout_s,
        told_by=told_by,
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
    from blimp.tasks.results.sql.cleaning import Cleaning

    return (Cleaning(results=results, clock=app.clock, log=log),)
