"""The streams as a kombu transport, at the address that kombu's and Celery's programs write.

    kombu.Connection(url, transport="blimp.queue.kombu_transport:Transport")

Tested by test_channel.py.
"""

from blimp.queue.celery.kombu_transport import Transport

__all__ = ["Transport"]
