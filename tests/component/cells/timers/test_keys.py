"""Python and Lua spell the same keys."""

from __future__ import annotations

import redis.asyncio as redis

from cells.timers.keys import Keys, minute_label
from cells.timers.valkey import script_text

_SPELL = """
return {bucket(ARGV[1], ARGV[2], ARGV[3]), heads(ARGV[1], ARGV[3]), held(ARGV[1], ARGV[4]), GATE,
  queue(ARGV[1], ARGV[4]), tenants(ARGV[1]), idle(ARGV[1]), virtual_time(ARGV[1]), released(ARGV[1]),
  board(ARGV[5]), history(ARGV[5]), park(ARGV[1], ARGV[5]), parked(ARGV[1]),
  MINUTES, HELD_AT, RATES, WAKE, READY, PARKED_LOOKS, EXECUTORS, ROOM, PASSED, DELAYED}
"""


async def test_python_and_lua_spell_the_same_keys(valkey: redis.Redis) -> None:
    keys, tenant, minute = Keys("eu-1"), bytes(range(16)), 29_843_280
    target = tenant + b"tgt_a"
    prelude = script_text("renew").split("-- Begin a generation")[0]
    spelled = await valkey.eval(prelude + _SPELL, 1, keys.prefix, 2, 17, minute_label(minute), tenant, target)
    assert spelled == [
        keys.bucket(2, 17, minute),
        keys.heads(2, minute),
        keys.held(2, tenant),
        keys.gate.encode(),
        keys.queue(2, tenant),
        keys.tenants(2).encode(),
        keys.idle(2).encode(),
        keys.virtual_time(2).encode(),
        keys.released(2).encode(),
        keys.board(target),
        keys.history(target),
        keys.park(2, target),
        keys.parked(2).encode(),
        keys.minutes.encode(),
        keys.held_at.encode(),
        keys.rates.encode(),
        keys.wake.encode(),
        keys.ready.encode(),
        keys.parked_looks.encode(),
        keys.executors.encode(),
        keys.room.encode(),
        keys.passed.encode(),
        keys.delayed.encode(),
    ]
    assert minute_label(minute) == "202609281200"
