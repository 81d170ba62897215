"""Flights as files: what a flight process leaves for its recorder, and MCAP files of it.

The flight process writes to a `Ring` in shared memory by a `Tape`. The recorder, a process of its
own, reads the ring and writes files with a `LogWriter`. `recording.open_recording` reads them.
"""
