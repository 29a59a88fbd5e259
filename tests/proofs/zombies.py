"""zombies: three hosts of one cell under a steady load are killed (-9), suspended for longer than
their leases and woken, and have their clocks stepped by 2 s; PostgreSQL and Valkey are restarted, the
network to the target is cut. No run is lost, none ends twice, none starts early; what a woken host
still held is refused by its epoch or fenced by itself, and counted."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.accounts import accounted, settle
from tests.cuttable import Cuttable
from tests.fleet import Fleet, Load, fleet
from tests.recorder import Recorder
from tests.waiting import eventually_sync

HOSTS = "abc"
PER_SECOND = 30
#: Longer than a host's lease (10 s).
SUSPENDED_SECONDS = 12.0
STEP_MS = 2000
#: What a claim may be called by: an epoch refused, a fence, a lease that had ended.
COUNTERS = (
    "executor_epoch_rejections_total",
    "executor_fenced_total",
    "executor_completions_dropped_total",
)


class Trouble:
    """Everything that can be done to a cell; and what the zombies' books say afterwards."""

    def __init__(self, cell: Fleet, network: Cuttable, seed: int) -> None:
        self._cell = cell
        self._network = network
        self._random = random.Random(seed)
        self.held = self.refused = self.rejected = 0

    def _somebody(self) -> str:
        return self._random.choice(HOSTS)

    def kill(self) -> None:
        """A crash; the host comes back after a while."""
        name = self._somebody()
        self._cell.kill(name)
        time.sleep(self._random.uniform(0.5, 3))
        self._cell.start(name)

    def suspend(self) -> None:
        """A zombie: its runs are taken over, then it goes on where it was."""
        cell, name = self._cell, self._somebody()
        host = cell.hosts[name]
        before = {counter: host.metric(counter) for counter in COUNTERS}
        cell.suspend(name)
        began = time.monotonic()
        time.sleep(0.3)  # what it had sent arrives
        held = cell.query(
            "SELECT r.parent_id, r.epoch FROM runs r JOIN hosts h USING (host_id)"
            " WHERE r.state = 'RUNNING' AND h.name LIKE %s",
            f"%-{host.process.pid}-%",
        )
        time.sleep(max(0.0, SUSPENDED_SECONDS - (time.monotonic() - began)))

        def taken_over() -> bool:
            still = cell.query(
                "SELECT count(*) FROM runs WHERE (parent_id, epoch) IN"
                " (SELECT * FROM unnest(%s::uuid[], %s::bigint[])) AND state = 'RUNNING'",
                [parent for parent, _ in held],
                [epoch for _, epoch in held],
            )
            return bool(still[0][0] == 0)

        eventually_sync(taken_over, timeout=30)
        cell.wake(name)

        def told() -> bool:
            return self._since(host, before) >= len(held)

        eventually_sync(told, timeout=20)
        self.held += len(held)
        self.refused += round(self._since(host, before))
        self.rejected += round(host.metric(COUNTERS[0]) - before[COUNTERS[0]])

    @staticmethod
    def _since(host: Any, before: dict[str, float]) -> float:
        return float(sum(host.metric(counter) - before[counter] for counter in COUNTERS))

    def step_clocks(self) -> None:
        """One host is ahead, one behind."""
        ahead, behind = self._random.sample(HOSTS, 2)
        self._cell.step(ahead, STEP_MS)
        self._cell.step(behind, -STEP_MS)
        time.sleep(6)
        self._cell.step(ahead, -STEP_MS)
        self._cell.step(behind, STEP_MS)
        time.sleep(4)
        for name in (ahead, behind):
            self._cell.step(name, 0)

    def restart_postgres(self) -> None:
        """Fast or at once."""
        self._cell.restart_postgres(self._random.choice((signal.SIGINT, signal.SIGQUIT)))

    def lose_valkey(self) -> None:
        """Flushed and killed."""
        self._cell.flush_valkey()
        self._cell.restart_valkey(signal.SIGKILL)

    def cut_network(self) -> None:
        """Of the target, for all hosts."""
        self._network.cut()
        time.sleep(2)
        self._network.mend()

    def all(self) -> Sequence[Callable[[], None]]:
        """Each once, in any order; zombies twice."""
        troubles = [
            self.kill,
            self.suspend,
            self.step_clocks,
            self.restart_postgres,
            self.lose_valkey,
            self.cut_network,
            self.suspend,
            self.kill,
        ]
        self._random.shuffle(troubles)
        return troubles


def main(seed: int | None = None) -> dict[str, Any]:
    seed = random.randrange(1_000_000) if seed is None else seed
    began = time.monotonic()
    with Recorder(delay_seconds=0.3) as target, Cuttable(target.port) as network, fleet(network.url) as cell:
        cell.start_all(HOSTS)
        trouble = Trouble(cell, network, seed)
        with Load(cell, per_second=PER_SECOND) as load:
            for make in trouble.all():
                time.sleep(2)
                make()
            load.finish()
            settle(cell, load, timeout=90)
        found = accounted(cell, load, target)
    return {
        **found,
        "holds": found["holds"] and trouble.held > 0 and trouble.rejected > 0,
        "held_by_zombies": trouble.held,
        "refused_or_fenced": trouble.refused,
        "refused_by_epoch": trouble.rejected,
        "seed": seed,
        "seconds": round(time.monotonic() - began),
    }
