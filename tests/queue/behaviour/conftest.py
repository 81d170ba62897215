"""A session on the streams of a test's server, to look and act past the worker."""

from tests.queue.celery.kombu_transport.conftest import session, streams

__all__ = ["session", "streams"]
