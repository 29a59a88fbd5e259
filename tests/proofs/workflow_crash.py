"""workflow-crash: whoever calls the store (engine, API, worker) is killed before and behind every one of its
transactions, and the database in the middle of it (kill -9 of a server process, so that it recovers from its
log), over random definitions: each history is one that a crash-free run could have made."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import msgspec
import psycopg

from cells.ports import Store
from cells.pulling import PulledTask
from tests.component.cells.workflows.crashing import (
    CrashingStore,
    drive,
    invented,
    scheduled_once,
    survives,
)
from tests.component.cells.workflows.harness import Flows
from tests.proofs.engines_only import flows_on_fresh_engines

DEFINITIONS = 8
KINDS = ("before", "behind", "database")
#: The database dies so long after a call was made, at most (seconds).
_WITHIN = 0.004


class _Proof:
    def __init__(self, flows: Flows, seed: int):
        self.flows = flows
        self.rng = random.Random(seed)
        self.keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self.crashes: defaultdict[str, int] = defaultdict(int)
        self.statuses: defaultdict[str, int] = defaultdict(int)
        self.executed = self.activities = 0

    async def kill_database(self) -> None:
        """A process of the server dies, so all of it does, and recovers from its log."""
        await asyncio.sleep(self.rng.random() * _WITHIN)
        try:
            async with await psycopg.AsyncConnection.connect(self.flows.url) as victim:
                os.kill(victim.info.backend_pid, signal.SIGKILL)
        except psycopg.OperationalError:
            return  # it is dead already

    async def run(self, text: dict[str, Any], name: str, crashes: Callable[[int], str | None]) -> int:
        """One workflow to its end; how many calls that took."""
        fates: dict[str, bool] = {}
        rng = random.Random(text["workflow"])

        def fate(task: PulledTask) -> bool:
            activity = task.claim.definition.activity
            assert activity is not None
            self.executed += 1
            self.keys[name, activity.step].add(activity.key)
            undoes = bool(activity.forward_key)
            return fates.setdefault(activity.step, undoes or rng.random() < 0.85)

        def noted(call: int) -> str | None:
            crash = crashes(call)
            if crash is not None:
                self.crashes[crash] += 1
            return crash

        store = CrashingStore(self.flows.world.store, noted, self.kill_database)
        self.flows.behind = cast(Store, store)
        await survives(self.flows, lambda: self.flows.start(name, text["workflow"], given={"n": 1}))
        events = await drive(self.flows, name, ["q"], fate)
        scheduled_once(events)
        await self.flows.until_it_answers()
        self.activities += sum(event.type == "ACTIVITY_SCHEDULED" for event in events)
        self.statuses[(await self.flows.row(name)).status] += 1
        return store.calls


def _at(place: int, how: str) -> Callable[[int], str | None]:
    return lambda call: how if call == place else None


async def crash(flows: Flows, definitions: int) -> dict[str, Any]:
    """So many definitions, each killed at each of its boundaries in each way."""
    proof = _Proof(flows, seed=7)
    wrong: list[str] = []
    histories = 0
    for seed in range(definitions):
        text = invented(random.Random(1_000 + seed))
        await flows.register(msgspec.json.encode(text).decode())
        calls = await proof.run(text, f"d{seed}-undisturbed", lambda _: None)
        for place in range(calls):
            for how in KINDS:
                name = f"d{seed}-{how}-{place}"
                histories += 1
                try:
                    await proof.run(text, name, _at(place, how))
                except AssertionError as error:
                    wrong.append(f"{name}: {error}"[:200])
    unstable = [step for step, keys in proof.keys.items() if len(keys) > 1]
    left = await flows.sql(b"SELECT count(*)::int FROM workflow_inbox")
    return {
        "holds": not wrong and not unstable and left == [(0,)] and set(proof.crashes) == set(KINDS),
        "definitions": definitions,
        "histories": histories,
        "killed": dict(proof.crashes),
        "ended": dict(proof.statuses),
        "activities": proof.activities,
        "executions_of_activities": proof.executed,
        "keys_that_changed": len(unstable),
        "words_left": left[0][0],
        "wrong": wrong[:10],
    }


def main(definitions: int = DEFINITIONS) -> dict[str, Any]:
    return flows_on_fresh_engines(lambda flows: crash(flows, definitions))
