"""What three regions cost: writes and their replicas, headroom for a lost region, the way back on
schedule, and what the same volumes would cost elsewhere.

Pure arithmetic over stated inputs, beside `capacity` (one region). Two stores are modelled: one that
bills writes, whose replicas are writes of their own, and cells of ours, whose standbys are sent the
log (WAL) and cost transfer, storage and a machine instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.client.capacity import DAY_SECONDS, MONTH_DAYS, MONTH_HOURS, Measured

MILLION = 1_000_000

#: Other regions that get a copy of every write, by region policy. STRICT waits for one of the same two.
COPIES: Mapping[str, int] = {"HOME_ASYNC": 2, "STRICT": 2, "SINGLE_REGION": 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of work in the model that bills writes."""

    name: str
    per_day: float
    writes: float  # at home, for one
    replicated: float  # share of it that is written in the other regions as well (0 to 1)
    rest_per_million: float = 0.0  # dollars: executors, cache, history
    copies: int = 2  # other regions


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """Billed writes of a day."""

    home: float
    replicated: float

    @property
    def replica_share(self) -> float:
        """Of all writes, those that are replicas."""
        total = self.home + self.replicated
        return self.replicated / total if total else 0.0


def volume(kinds: Sequence[Kind]) -> Volume:
    """Writes of a day over all regions."""
    return Volume(
        home=sum(k.per_day * k.writes for k in kinds),
        replicated=sum(k.per_day * k.writes * k.replicated * k.copies for k in kinds),
    )


def cost_per_million(kind: Kind, million_writes: float) -> float:
    """Dollars for a million of a kind, its mix of policies as it is."""
    return kind.writes * (1 + kind.replicated * kind.copies) * million_writes + kind.rest_per_million


def cost_under(kind: Kind, policy: str, million_writes: float) -> float:
    """Dollars for a million of a kind if all of it had one region policy."""
    return kind.writes * (1 + COPIES[policy]) * million_writes + kind.rest_per_million


# --- a lost region ---------------------------------------------------------------------------
def headroom(shares: Sequence[float]) -> float:
    """What must be kept ready beyond the load itself, as a share of it, so that the others take over the
    largest region they might lose, in equal parts. `shares`: of the load, by region; they sum to 1."""
    if len(shares) < 2:
        return 0.0
    ready = 0.0
    for n, own in enumerate(shares):
        largest = max(other for m, other in enumerate(shares) if m != n)
        ready += own + largest / (len(shares) - 1)
    return ready / sum(shares) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Failover:
    """What a survivor has to do before timers are on schedule again."""

    owner_seconds: float  # nobody owns the lost region's cells until then
    overdue: float  # timers that became due meanwhile, for each survivor
    ahead: float  # timers to load before it goes on, for each survivor
    load_seconds: float

    @property
    def on_schedule_seconds(self) -> float:
        """From the failure on."""
        return self.owner_seconds + self.load_seconds


def failover(
    timers_per_second: float,
    *,
    lease_seconds: float = 20.0,
    wait_seconds: float = 5.0,
    ahead_seconds: float = 600.0,
    survivors: int = 2,
    loaded_per_second: float = 50_000.0,
) -> Failover:
    """`timers_per_second`: of the region that is lost. It fails just after a renewal: the worst case."""
    owner = lease_seconds + wait_seconds
    overdue = owner * timers_per_second / survivors
    ahead = ahead_seconds * timers_per_second / survivors
    return Failover(
        owner_seconds=owner, overdue=overdue, ahead=ahead, load_seconds=(overdue + ahead) / loaded_per_second
    )


# --- cells of ours over three regions ------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """US dollars; list prices as of `as_of`."""

    as_of: str = "2025-06-30"
    between_regions_gb: float = 0.02
    storage_gb_month: float = 0.25
    core_hour: float = 0.0395


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """What a month of runs over several regions costs in cells of ours, by what causes it."""

    bytes_replicated_per_run: float
    replicated_gb_month: float
    transfer_month: float
    standby_cores_month: float
    standby_storage_month: float

    @property
    def month(self) -> float:
        """Dollars for replication, beside what the home region costs."""
        return self.transfer_month + self.standby_cores_month + self.standby_storage_month


def spread(
    runs_per_second: float,
    policy: str,
    measured: Measured,
    prices: Transfer,
    *,
    kept_days: int = 30,
) -> Spread:
    """Replication of cells of ours. `runs_per_second`: the average. A standby replays what its primary
    wrote, which costs it about what the primary's database spent."""
    copies = COPIES[policy]
    a_month = runs_per_second * DAY_SECONDS * MONTH_DAYS
    replicated = measured.wal_bytes_per_run * copies
    gigabytes = a_month * replicated / 1e9
    cores = runs_per_second * measured.database_us_per_run / 1e6 / measured.utilisation * copies
    kept = runs_per_second * DAY_SECONDS * kept_days * measured.run_bytes * copies / 1e9
    return Spread(
        bytes_replicated_per_run=replicated,
        replicated_gb_month=gigabytes,
        transfer_month=gigabytes * prices.between_regions_gb,
        standby_cores_month=cores * MONTH_HOURS * prices.core_hour,
        standby_storage_month=kept * prices.storage_gb_month,
    )


# --- build or buy ----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """List prices of others, US dollars, us-east-1, as of `as_of`. Edit them."""

    as_of: str = "2025-06-30"
    scheduler_million: float = 1.00  # EventBridge Scheduler: a million invocations
    scheduler_free: float = 14_000_000  # a month
    transitions_million: float = 25.00  # Step Functions Standard: a million state transitions
    transitions_free: float = 4_000  # a month
    transitions_per_step: float = 1.0  # a step that is tried again transitions again


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One row of the table."""

    name: str
    month: float  # dollars
    what: str  # what the figure stands for, and what it leaves out


def build_or_buy(
    *,
    runs_month: float,
    steps_month: float,
    run_million: float,
    step_million: float,
    team_month: float,
    offers: Offers,
) -> tuple[Choice, ...]:
    """What a month costs elsewhere and here. `run_million`, `step_million`: what a million cost here."""
    invocations = max(0.0, runs_month - offers.scheduler_free)
    transitions = max(0.0, steps_month * offers.transitions_per_step - offers.transitions_free)
    here = (runs_month * run_million + steps_month * step_million) / MILLION
    return (
        Choice(
            name="EventBridge Scheduler + Step Functions Standard",
            month=invocations * offers.scheduler_million / MILLION
            + transitions * offers.transitions_million / MILLION,
            what="list price; starts within a minute, no priorities, no leases or heartbeats, no run history",
        ),
        Choice(
            name="Clockhouse, run by yourself", month=here, what="machines, storage and replication alone"
        ),
        Choice(
            name="Clockhouse, with the team that runs it",
            month=here + team_month,
            what="the same, and the people",
        ),
    )
