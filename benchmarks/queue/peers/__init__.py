"""One file a peer: its task, and `open_sender`, which returns what sends one message.

A sender takes a time of sending in nanoseconds and gives it to the task, whose whole body is
`tally.ran`. Peers with an asyncio client have an `async def open_sender`. The files are run in
the peer's own environment, so each imports its peer and `benchmarks.queue.tally`, no more.
"""
