"""Opening the result backend that an app's `result_backend` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, LinkError
from blimp.queue.redis.urls import SCHEMES, check_address, hide_password, split_urls
from blimp.queue.results.backend import DATABASE, DIALECTS

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.results.backend import ResultApp, ResultBackend, ResultOptions


def database_url(url: str | Sequence[str] | None) -> str | None:
    """Return the SQLAlchemy URL in a `result_backend`, None for that of a Redis server.

    Raises ConfigError for what names neither, with the URL that was probably meant.
    """
    if url is None:
        return None
    urls = [url] if isinstance(url, str) and url.startswith(DATABASE) else split_urls(url)
    if not any(one.startswith(DATABASE) for one in urls):
        for one in urls:
            _check_redis(one)
        return None
    if len(urls) > 1:
        raise ConfigError("result_backend: results are kept in one database, not in several")
    return urls[0].removeprefix(DATABASE)


def _check_redis(url: str) -> None:
    shown = f"result_backend {hide_password(url)!r}"
    scheme, separator, rest = url.partition("://")
    dialect, plus, driver = scheme.partition("+")
    if dialect in (*DIALECTS, "postgres"):
        dialect = "postgresql" if dialect == "postgres" else dialect
        meant = hide_password(f"{DATABASE}{dialect}{plus}{driver}{separator}{rest}")
        raise ConfigError(f"{shown}: the URL of a database begins with {DATABASE!r}: {meant!r}")
    if not separator or scheme not in SCHEMES:
        known = ", ".join((*SCHEMES, *(DATABASE + one for one in DIALECTS)))
        raise ConfigError(f"{shown}: its scheme must be one of {known}")
    try:
        check_address(url)
    except ConfigError as error:  # it speaks of a broker
        raise ConfigError(f"{shown}: {str(error).rpartition(': ')[2]}") from None


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
    from blimp.queue.results.sql.database import SqlResults  # needs the extra `sql`

    return SqlResults(
        url=url,
        clock=clock,
        options=options,
        limit_bytes=limit_bytes,
        timeout_s=timeout_s,
        notify_server=notify_server,
    )


def prepare_results(app: ResultApp, *, log: Any) -> tuple[Callable[[bool], None], ...]:
    """Prepare the result backend of a starting worker; return what its heartbeat is to call.

    Raises TableMismatch. An unreachable database is waited for with the first result.
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
    from blimp.queue.results.sql.database import Cleanup  # needs the extra `sql`

    return (Cleanup(results=results, clock=app.clock, log=log),)
