"""What flight logs use of the `mcap` package, which the extra `ship` installs.

It brings lz4 and zstandard, of which a free-threaded CPython has no wheels; the queue needs none
of them, so only what reads or writes a log imports this.
"""

from blimp.distribution import needing

with needing("ship", "flight logs need"):
    from mcap.data_stream import ReadDataStream
    from mcap.exceptions import McapError
    from mcap.opcode import Opcode
    from mcap.records import Attachment, Channel, Chunk, Header, Metadata
    from mcap.records import Message as McapMessage
    from mcap.stream_reader import breakup_chunk
    from mcap.writer import MCAP0_MAGIC, CompressionType, Writer

__all__ = [
    "MCAP0_MAGIC", "Attachment", "Channel", "Chunk", "CompressionType", "Header", "McapError",
    "McapMessage", "Metadata", "Opcode", "ReadDataStream", "Writer", "breakup_chunk",
]  # fmt: skip
