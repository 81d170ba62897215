"""The fixtures of the queue's tests: an app, a worker, and a real broker."""

from tests.queue.conftest import app, look, own_broker, server, start_worker, transport, url

__all__ = ["app", "look", "own_broker", "server", "start_worker", "transport", "url"]
