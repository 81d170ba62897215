"""Pools of resources (a ship, a camera, a pilot's authority) that always come back.

pool = ResourcePool(redis.Redis(), "ships", ttl_s=30)
pool.add("twin")
with pool.lease("alice", wait_s=5.0) as grant:
    fly(grant.resource, fence=grant.token)

Tested by test_pool.py.
"""

from blimp.queue.resources.grant import Grant, Release, ReleaseOutcome, Ticket
from blimp.queue.resources.pool import ResourcePool
from blimp.queue.resources.pool_server import Holding, PoolStats

__all__ = ["Grant", "Holding", "PoolStats", "Release", "ReleaseOutcome", "ResourcePool", "Ticket"]
