"""Pools of executors (a ship, a camera, a pilot's authority) that always come back.

pool = ExecutorPool(redis.Redis(), "ships", ttl_s=30)
pool.add("twin")
with pool.lease("alice", wait_s=5.0) as grant:
    fly(grant.executor, fence=grant.token)
"""

from blimp.queue.resources.grant import Grant, Holding, Outcome, PoolStats, Release, Ticket
from blimp.queue.resources.pool import ResourcePool

__all__ = ["Grant", "Holding", "Outcome", "PoolStats", "Release", "ResourcePool", "Ticket"]
