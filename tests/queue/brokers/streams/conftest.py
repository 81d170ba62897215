"""The fixtures of the kombu transport's tests, on the same streams."""

from tests.queue.celery.kombu_transport.conftest import connect, session, streams, transport

__all__ = ["connect", "session", "streams", "transport"]
