"""Which jobs' coming instants move between two versions of the time-zone data.

    python -m cells.tzguard --from DIRECTORY|WHEEL|installed --to DIRECTORY|WHEEL|installed [--days 366]

Reads the jobs of the cell at CELL_DATABASE_URL; changes nothing. A directory holds compiled zone files
(`Europe/Berlin`), as `tzdata/zoneinfo` of the package does; a wheel is one of the `tzdata` package.
Exit status: 0 nothing moves, 1 something does, 2 the arguments are none.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from cells.domain import ids
from cells.domain.compiled import Compiled
from cells.domain.faults import ScheduleError
from cells.domain.retiming import follows_a_clock
from cells.domain.schedule import build_schedule
from cells.domain.zones import NAMES, TZDATA_VERSION, zone
from cells.scheduling import WaitingJob
from cells.store.postgres import PostgresStore

_PAGE = 500
#: Occurrences of one job that are compared.
_MOST = 2_000
_PREFIX = "tzdata/zoneinfo/"

FindZone = Callable[[str, str], ZoneInfo]


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """One job and the first of its instants that moves."""

    job: WaitingJob
    before: datetime | None
    after: datetime | None
    count: int  # instants that are not the same, of those compared


def find_zones(source: str) -> FindZone:
    """Zones out of a directory or a wheel, or those installed. Raises `ValueError`."""
    if source in ("installed", TZDATA_VERSION):
        return zone
    path = Path(source)
    if path.is_dir():
        root = path / "tzdata" / "zoneinfo" if (path / "tzdata" / "zoneinfo").is_dir() else path
        return _remembered(lambda name: (root / name).read_bytes())
    if path.is_file() and zipfile.is_zipfile(path):
        wheel = zipfile.ZipFile(path)
        return _remembered(lambda name: wheel.read(_PREFIX + name))
    raise ValueError(
        f"{source} is neither a directory of zone files nor a wheel of tzdata,"
        f" nor `installed` ({TZDATA_VERSION})"
    )


def _remembered(read: Callable[[str], bytes]) -> FindZone:
    known: dict[str, ZoneInfo] = {}

    def find(name: str, pointer: str) -> ZoneInfo:
        if name not in known:
            if name not in NAMES:
                raise ScheduleError(pointer, f"{name[:60]!a} is not an IANA time zone")
            try:
                known[name] = ZoneInfo.from_file(io.BytesIO(read(name)), key=name)
            except (OSError, KeyError, ValueError) as error:
                raise ScheduleError(pointer, f"{name} is not in that data: {error}") from None
        return known[name]

    return find


def compare(job: WaitingJob, old: FindZone, new: FindZone, now: datetime, until: datetime) -> Moved | None:
    """What of a job moves up to an instant; None if nothing does."""
    schedule = job.definition.schedule
    if not follows_a_clock(schedule):
        return None
    try:
        before = list(_instants(build_schedule(schedule, old), now, until))
        after = list(_instants(build_schedule(schedule, new), now, until))
    except ScheduleError:
        return None
    if before == after:
        return None
    gone, come = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    return Moved(
        job=job, before=gone[0] if gone else None, after=come[0] if come else None,
        count=max(len(gone), len(come)),
    )  # fmt: skip


def _instants(compiled: Compiled, now: datetime, until: datetime) -> Iterator[datetime]:
    found = compiled.first(now)
    for _ in range(_MOST):
        if found is None or found.at > until:
            return
        yield found.at
        found = compiled.next(found.at)


async def _run(database_url: str, old: FindZone, new: FindZone, days: int) -> list[Moved]:
    now = datetime.now(UTC).replace(microsecond=0)
    moved: list[Moved] = []
    store = PostgresStore(database_url, cell_name=os.environ.get("CELL_NAME", ""), pool_size=1)
    async with store:
        after = None
        while True:
            jobs, after = await store.waiting_jobs(after=after, limit=_PAGE)
            for job in jobs:
                found = compare(job, old, new, now, now + timedelta(days=days))
                if found is not None:
                    moved.append(found)
            if after is None:
                return moved


def _line(moved: Moved) -> str:
    schedule = moved.job.definition.schedule
    return json.dumps(
        {
            "tenant_id": ids.encode(ids.TENANT, moved.job.tenant_id),
            "job_id": ids.encode(ids.JOB, moved.job.job_id),
            "name": moved.job.definition.name,
            "time_zone": schedule.time_zone,
            "schedule": schedule.cron or schedule.run_at,
            "before": moved.before.isoformat() if moved.before is not None else None,
            "after": moved.after.isoformat() if moved.after is not None else None,
            "instants": moved.count,
        }
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """One line of JSON for each job whose instants move, and a sum on standard error."""
    parser = argparse.ArgumentParser(prog="python -m cells.tzguard", description=__doc__)
    parser.add_argument("--from", dest="old", required=True, help="directory, wheel or `installed`")
    parser.add_argument("--to", dest="new", required=True, help="directory, wheel or `installed`")
    parser.add_argument("--days", type=int, default=366, help="how far ahead to look (366)")
    chosen = parser.parse_args(arguments)
    url = os.environ.get("CELL_DATABASE_URL")
    try:
        old, new = find_zones(chosen.old), find_zones(chosen.new)
        if not url:
            raise ValueError("CELL_DATABASE_URL is not set")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    moved = asyncio.run(_run(url, old, new, chosen.days))
    for one in moved:
        print(_line(one))
    print(f"{len(moved)} jobs move", file=sys.stderr)
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
