"""histories: short random histories of three small clusters of a cell, and of a cell beside it: kills, cuts,
held and slow links, wrong clocks, planned handovers, moves and returns. After each: no acknowledged STRICT
write is lost, no occurrence is without a run, no record is completed twice, no tenant was active in two
cells. `HISTORIES=200`, `SEED=…` of the first: each is drawn from its own seed, `HISTORIES=1` repeats one."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from typing import Any

import structlog

from tests.histories.playing import Played, Stage
from tests.histories.script import script_of
from tests.histories.world import TIMING, World, world

log = structlog.get_logger(__name__)

HISTORIES = 200


def main(histories: int | None = None, seed: int | None = None) -> dict[str, Any]:
    count = histories or int(os.environ.get("HISTORIES", HISTORIES))
    first = seed if seed is not None else int(os.environ.get("SEED", secrets.randbelow(2**31)))
    with world() as made:
        return asyncio.run(_play_all(made, [first + n for n in range(count)]))


async def _play_all(made: World, seeds: list[int]) -> dict[str, Any]:
    played: list[Played] = []
    before = 0
    began = time.monotonic()
    async with Stage(made) as stage:
        before = len(made.store.promotions("x"))
        for seed in seeds:
            one = await stage.play(script_of(seed))
            log.info("history", seed=seed, seconds=round(one.seconds, 1), faults=one.faults, did=one.did)
            played.append(one)
        records = made.store.promotions("x")
    bad = {str(one.seed): one.faults for one in played if one.faults}
    did = Counter[str]()
    for one in played:
        did.update(one.did)
    timelines = [record.timeline for record in records]
    return {
        "holds": not bad and timelines == list(range(1, len(timelines) + 1)),
        "histories": len(played),
        "first_seed": seeds[0],
        "failed": bad,
        "seconds": round(time.monotonic() - began),
        "seconds_per_history": round((time.monotonic() - began) / len(played), 1),
        "slowest_history_seconds": round(max(one.seconds for one in played), 1),
        "lease_seconds": TIMING.lease,
        "promotions": len(records) - before,
        **dict(sorted(did.items())),
    }
