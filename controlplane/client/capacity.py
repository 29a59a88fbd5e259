"""How much a scheduler of some size needs: peak rates, executors with headroom, writes, money a month.

Pure arithmetic over stated inputs. Two models: one store that bills writes (how the published design is
sized), and cells of ours, from constants that were measured (`tests/bench/results`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

DAY_SECONDS = 86_400
#: What a month is in price lists.
MONTH_HOURS, MONTH_DAYS = 730, 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """US dollars, us-east-1 list prices as of `as_of`. Edit them for another region or contract."""

    as_of: str = "2025-06-30"
    million_writes: float = 0.625  # on demand, 1 KB each
    provisioned_write_hour: float = 0.00065  # one write a second, for an hour
    executor_hour: float = 0.0395  # 1 vCPU, 2 GB, ARM
    core_hour: float = 0.0395  # of a cell's machines
    storage_gb_month: float = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is asked for. The peak is a burst that is spread over its window, on top of the background."""

    background_per_second: float  # runs started a second, outside of bursts
    burst_runs: int = 0  # due at one instant
    window_seconds: int = 1  # over which a burst is spread
    runs_per_day: int | None = None  # None: the background alone
    long_jobs: int = 0  # running at once, with heartbeats
    heartbeat_seconds: int = 10
    other_writes_per_day: int = 0  # creations, edits
    #: Shares of the peak by pool. Each pool is a bulkhead: headroom is counted for each alone.
    pools: dict[str, float] = field(default_factory=lambda: {"HIGH": 0.2, "DEFAULT": 0.6, "LOW": 0.2})
    burst_minutes_per_hour: float = 60.0  # for so long the peak fleet runs; 60: always

    @property
    def peak_per_second(self) -> float:
        """Runs started a second while the burst leaves its window."""
        return self.burst_runs / self.window_seconds + self.background_per_second

    @property
    def runs_a_day(self) -> float:
        """Runs in a day."""
        return self.background_per_second * DAY_SECONDS if self.runs_per_day is None else self.runs_per_day

    @property
    def heartbeats_per_second(self) -> float:
        """Of long jobs."""
        return self.long_jobs / self.heartbeat_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """How it is run: what an executor does, what a run writes, how many zones there are."""

    runs_per_executor: float = 500.0  # a second, sustained
    zones: int = 3  # losing one must leave enough
    writes_per_run: float = 5.0
    writes_per_heartbeat: float = 3.0
    off_peak: int | None = None  # executors off the peak; None: the background with headroom
    provisioned_off_peak: float | None = None  # writes a second kept ready then; None: the average


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """Executors by pool, at the peak and off it."""

    needed: dict[str, int]  # without headroom
    peak: dict[str, int]  # with one zone lost, enough are left
    off_peak: int
    average: float  # over the hour

    @property
    def total(self) -> int:
        """Executors at the peak."""
        return sum(self.peak.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Writes:
    """Billed writes."""

    per_day: float
    average_per_second: float
    peak_per_second: float
    on_demand_month: float  # dollars
    provisioned_month: float  # dollars, following the peak within the hour
    break_even: float  # of utilisation: above it, provisioned costs less
    utilisation: float  # if provisioned flat at the peak


def with_headroom(needed: int, zones: int) -> int:
    """So many that, when one zone is lost, at least `needed` are left."""
    return math.ceil(needed * zones / (zones - 1)) if zones > 1 else needed


def fleet(work: Workload, sizing: Sizing) -> Fleet:
    """Executors for the peak, pool by pool, rounded up in each."""
    needed = {
        pool: math.ceil(round(work.peak_per_second * share / sizing.runs_per_executor, 6))
        for pool, share in work.pools.items()
    }
    peak = {pool: with_headroom(count, sizing.zones) for pool, count in needed.items()}
    alone = work.background_per_second / sizing.runs_per_executor
    quiet = sum(
        max(sizing.zones, with_headroom(math.ceil(share * alone), sizing.zones))
        for share in work.pools.values()
    )
    if sizing.off_peak is not None:
        quiet = sizing.off_peak
    share_of_hour = work.burst_minutes_per_hour / 60
    average = sum(peak.values()) * share_of_hour + quiet * (1 - share_of_hour)
    return Fleet(needed=needed, peak=peak, off_peak=quiet, average=average)


def writes(work: Workload, sizing: Sizing, prices: Prices) -> Writes:
    """What is written, and what it costs either way."""
    heartbeats = work.heartbeats_per_second * sizing.writes_per_heartbeat
    per_day = work.runs_a_day * sizing.writes_per_run + heartbeats * DAY_SECONDS + work.other_writes_per_day
    average = per_day / DAY_SECONDS
    peak = work.peak_per_second * sizing.writes_per_run + heartbeats
    full_use = prices.provisioned_write_hour / 3600 * 1_000_000
    burst = work.burst_minutes_per_hour
    between = average if sizing.provisioned_off_peak is None else sizing.provisioned_off_peak
    ready = (peak * burst + between * (60 - burst)) / 60
    return Writes(
        per_day=per_day,
        average_per_second=average,
        peak_per_second=peak,
        on_demand_month=per_day * MONTH_DAYS / 1_000_000 * prices.million_writes,
        provisioned_month=ready * prices.provisioned_write_hour * MONTH_HOURS,
        break_even=full_use / prices.million_writes,
        utilisation=average / peak if peak else 0.0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Constants of one cell of ours on two cores: medians in `tests/bench/results/pipeline.json`."""

    as_of: str = "2026-11-30"
    executor_us_per_run: float = 180.0  # CPU, with a signed HTTP call
    rest_us_per_run: float = 13.7  # loaders, dispatchers
    database_us_per_run: float = 69.0
    cache_us_per_run: float = 12.3
    cell_runs_per_second: float = 4_800.0  # whole pipeline on two cores
    row_writes_per_run: float = 3.0  # insert, advance, end
    wal_bytes_per_run: float = 1_870.0  # of PostgreSQL's log: what a standby is sent
    run_bytes: int = 700  # a row with one attempt, its indexes included
    utilisation: float = 0.6  # of a core that is planned for


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """What cells of ours need for a workload."""

    executor_cores: int  # with headroom
    database_cores: int
    other_cores: int
    cells: int  # one database each; growth is by adding cells
    row_writes_per_second: float  # at the peak
    storage_gb: float
    cost_month: float  # dollars

    @property
    def cores(self) -> int:
        """Of all machines."""
        return self.executor_cores + self.database_cores + self.other_cores


def cells(
    work: Workload,
    measured: Measured,
    prices: Prices,
    *,
    zones: int = 3,
    kept_days: int = 30,
    per_cell: float | None = None,
) -> Cells:
    """Cores, cells, writes, storage and money. `per_cell`: runs a second that one database is given."""
    rate = work.peak_per_second

    def cores(us: float) -> int:
        return max(1, math.ceil(round(rate * us / 1_000_000 / measured.utilisation, 6)))

    executor = with_headroom(cores(measured.executor_us_per_run), zones)
    database = 2 * cores(measured.database_us_per_run)  # with its standby
    other = with_headroom(cores(measured.rest_us_per_run + measured.cache_us_per_run), zones)
    storage = 2 * work.runs_a_day * kept_days * measured.run_bytes / 1e9
    machines = (executor + database + other) * prices.core_hour * MONTH_HOURS
    return Cells(
        executor_cores=executor,
        database_cores=database,
        other_cores=other,
        cells=max(1, math.ceil(rate / (per_cell or measured.cell_runs_per_second))),
        row_writes_per_second=rate * measured.row_writes_per_run,
        storage_gb=storage,
        cost_month=machines + storage * prices.storage_gb_month,
    )
