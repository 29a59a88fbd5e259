"""histories: regions die and come back in every order, one at a time or two at once, again and again. Never
two owners; every takeover begins a timeline of its own; what any standby had confirmed is there in the end,
at all sites, which have one history. Times are a tenth of the real ones."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import Any

import psycopg

from cells.standby.cluster import Cluster
from cells.store.postgres import PostgresStore
from controlplane.ownership.postgres import migrate as migrate_ownership
from deploy.engines import temporary_postgres, temporary_valkey
from tests.component.controlplane.regions.kept import REGIONS, Kept, Site, three_regions
from tests.waiting import eventually_sync

ROUNDS = 12
_ROWS = 5  # written in each round
_PATIENCE = 120.0


def main(rounds: int = ROUNDS, seed: int | None = None) -> dict[str, Any]:
    chosen = secrets.randbelow(2**31) if seed is None else seed
    with temporary_postgres() as ownership, temporary_valkey() as cache:
        migrate_ownership(ownership.url)
        with three_regions(ownership.url, cache.url) as kept:
            return {**_lose_regions(kept, random.Random(chosen), rounds=rounds), "seed": chosen}


def _lose_regions(kept: Kept, chance: random.Random, *, rounds: int) -> dict[str, Any]:
    _set_up(kept["a"])
    eventually_sync(kept.owner, timeout=_PATIENCE)
    for region in "bc":
        kept[region].start()
    owner = _all_well(kept)
    confirmed: set[int] = set()
    written = lost = 0
    takeovers: list[float] = []
    deaths = {"owner": 0, "standby": 0, "two": 0}
    for _ in range(rounds):
        for _ in range(_ROWS):
            written += 1
            if _write(owner, written):
                confirmed.add(written)
        others = [region for region in REGIONS if region != owner.settings.region]
        what = chance.choice(["owner", "owner", "standby", "two"])
        deaths[what] += 1
        victims = {
            "owner": [owner.settings.region],
            "standby": [chance.choice(others)],
            "two": [owner.settings.region, chance.choice(others)],
        }[what]
        chance.shuffle(victims)
        for region in victims:
            kept[region].die()
        began = time.monotonic()
        if what == "owner":
            # While it is away: with the vote of every standby, one of them takes over.
            eventually_sync(kept.owner, timeout=_PATIENCE)
            takeovers.append(time.monotonic() - began)
        chance.shuffle(victims)
        for region in victims:
            kept[region].start()
        owner = _all_well(kept)
        there = _rows(owner)
        lost += len(confirmed - there)
    eventually_sync(lambda: all(_rows(site) >= confirmed for site in kept.values()), timeout=_PATIENCE)
    eventually_sync(lambda: len(_lines(kept)) == 1, timeout=_PATIENCE)
    lines = _lines(kept)
    promotions = kept.store.promotions("cell")
    epochs = [record.epoch for record in promotions]
    return {
        "holds": lost == 0
        and len(lines) == 1
        and [record.timeline for record in promotions] == list(range(1, len(promotions) + 1))
        and epochs == sorted(set(epochs)),
        "rounds": rounds,
        "deaths": deaths,
        "promotions": len(promotions) - 1,
        "written": written,
        "confirmed": len(confirmed),
        "confirmed_and_lost": lost,
        "histories": len(lines),
        "slowest_takeover_seconds": round(max(takeovers, default=0.0), 1),
    }


def _set_up(site: Site) -> None:
    async def set_up() -> None:
        async with PostgresStore(site.url, cell_name="cell", pool_size=2, leased=True):
            site.execute("CREATE TABLE facts (n int PRIMARY KEY)")

    asyncio.run(set_up())


def _all_well(kept: Kept) -> Site:
    """One owns the cell and the others follow it; who."""

    def well() -> Site | None:
        owner = kept.owner()
        return owner if owner is not None and kept.follow(owner.settings.region) else None

    found = eventually_sync(well, timeout=_PATIENCE)
    if found is None:
        raise AssertionError("nobody owns the cell")
    return found


def _write(owner: Site, number: int) -> bool:
    """Whether another region has it."""
    owner.execute("INSERT INTO facts VALUES (%s)", number)
    cluster = Cluster(owner.url, site=owner.settings.region, cell="cell")
    try:
        at = cluster.look().replayed
        return bool(eventually_sync(lambda: any(one.flushed >= at for one in cluster.standbys()), timeout=20))
    finally:
        cluster.close()


def _lines(kept: Kept) -> set[str]:
    """The histories there are: timelines and where each was left."""
    found = set()
    for region, site in kept.items():
        cluster = Cluster(site.url, site=region, cell="cell")
        try:
            found.add(cluster.line().text())
        finally:
            cluster.close()
    return found


def _rows(site: Site) -> set[int]:
    try:
        return {row[0] for row in site.execute("SELECT n FROM facts")}
    except psycopg.OperationalError:
        return set()
