"""All key names of a cell's timers, in one place. lua/keys.lua spells those that scripts touch.

    ch:{cell}:b:<class>:<shard>:<minute>   bucket: zset member -> due ms
    ch:{cell}:heads:<class>:<minute>       zset shard -> earliest due ms
    ch:{cell}:minutes                      zset minute -> minutes since the epoch: which hold anything
    ch:{cell}:gen                          <run id of the server>:<generation>; lost with the rest
    ch:{cell}:loaded:<generation>:<minute> bitmap of shards loaded from the store
    ch:{cell}:loading:<generation>:<minute> somebody loads it now (expires)
    ch:{cell}:rates                        hash tenant -> releases per second, of all classes
    ch:{cell}:room                         hash tenant -> how far `passed` may go; of those near their quota
    ch:{cell}:passed                       hash tenant -> members past the gate, of the same
    ch:{cell}:delayed                      hash tenant -> 1 where LOW work waits for its budget
    ch:{cell}:gate                         hash tenant -> GCRA's theoretical arrival time, ms
    ch:{cell}:turns:<class>                hash shard -> tenant that had its turn last in an instant
    ch:{cell}:held:<class>:<tenant>        zset past quota: member -> due ms
    ch:{cell}:heldat                       zset class+tenant -> when its tokens are looked at again
    ch:{cell}:q:<class>:t:<tenant>         zset released: member -> due ms
    ch:{cell}:q:<class>:tenants            zset tenant -> virtual start
    ch:{cell}:q:<class>:idle               zset tenant -> the start it left behind
    ch:{cell}:q:<class>:time               virtual time
    ch:{cell}:q:<class>:released           hash member -> released ms; its length is the depth
    ch:{cell}:t:<target>                   a target's limit, breaker, shares (lua/exchange.lua), msgpack
    ch:{cell}:h:<target>                   list: its last hour, minute by minute, msgpack
    ch:{cell}:park:<class>:<target>        zset parked: member -> due ms
    ch:{cell}:parked:<class>               hash member -> released ms, target: where it is parked
    ch:{cell}:parkedat                     zset target -> when somebody must look at what is parked
    ch:{cell}:executors                    zset executor -> until when it counts as alive, ms
    ch:{cell}:wake, ch:{cell}:ready, ch:{cell}:tasks  channels

The braces are literal: they keep a cell in one cluster slot. Minutes are `YYYYMMDDHHMM` (UTC),
tenants the 16 bytes of their ids, targets those of their tenants with their own ids behind.
"""

from __future__ import annotations

import time
from functools import lru_cache


@lru_cache(maxsize=1024)
def minute_label(minute: int) -> str:
    """`YYYYMMDDHHMM` of a minute since the epoch."""
    return time.strftime("%Y%m%d%H%M", time.gmtime(minute * 60))


class Keys:
    """The names under one cell's prefix."""

    def __init__(self, cell: str):
        self.prefix = f"ch:{{{cell}}}:"
        self.minutes = self.prefix + "minutes"
        self.generation = self.prefix + "gen"
        self.rates = self.prefix + "rates"
        self.gate = self.prefix + "gate"
        self.room = self.prefix + "room"
        self.passed = self.prefix + "passed"
        self.delayed = self.prefix + "delayed"
        self.held_at = self.prefix + "heldat"
        self.parked_looks = self.prefix + "parkedat"
        self.executors = self.prefix + "executors"
        self.wake = self.prefix + "wake"
        self.ready = self.prefix + "ready"
        self.tasks = self.prefix + "tasks"

    def bucket(self, priority: int, shard: int, minute: int) -> bytes:
        return f"{self.prefix}b:{priority}:{shard}:{minute_label(minute)}".encode()

    def heads(self, priority: int, minute: int) -> bytes:
        return f"{self.prefix}heads:{priority}:{minute_label(minute)}".encode()

    def loaded(self, generation: str, minute: int) -> str:
        return f"{self.prefix}loaded:{generation}:{minute_label(minute)}"

    def loading(self, generation: str, minute: int) -> str:
        return f"{self.prefix}loading:{generation}:{minute_label(minute)}"

    def held(self, priority: int, tenant: bytes) -> bytes:
        return f"{self.prefix}held:{priority}:".encode() + tenant

    def queue(self, priority: int, tenant: bytes) -> bytes:
        return f"{self.prefix}q:{priority}:t:".encode() + tenant

    def tenants(self, priority: int) -> str:
        return f"{self.prefix}q:{priority}:tenants"

    def idle(self, priority: int) -> str:
        return f"{self.prefix}q:{priority}:idle"

    def virtual_time(self, priority: int) -> str:
        return f"{self.prefix}q:{priority}:time"

    def released(self, priority: int) -> str:
        return f"{self.prefix}q:{priority}:released"

    def board(self, target: bytes) -> bytes:
        return f"{self.prefix}t:".encode() + target

    def history(self, target: bytes) -> bytes:
        return f"{self.prefix}h:".encode() + target

    def park(self, priority: int, target: bytes) -> bytes:
        return f"{self.prefix}park:{priority}:".encode() + target

    def parked(self, priority: int) -> str:
        return f"{self.prefix}parked:{priority}"
