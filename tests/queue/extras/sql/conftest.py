"""Databases, as in tests/queue/results."""

from tests.queue.results.conftest import (
    database,
    mariadb_url,
    names,
    open_results,
    postgres_url,
)

__all__ = ["database", "mariadb_url", "names", "open_results", "postgres_url"]
