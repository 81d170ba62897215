"""This project's queue beside its peers: the same server, machine and minute for all."""
