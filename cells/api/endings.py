"""Endings that workers report, judged and written in batches.

What a completion needs to know of its run is remembered from when its task was handed out, or read first,
without a lock: the write is conditional on the epoch, so whatever changes in between makes it change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cells.api.feed import QueueFeed
from cells.api.handed_out import HandedOut
from cells.api.problems import Problem, conflict, not_found
from cells.api.pulled import Ended, Ending, Outcome, ending_completion, said_before
from cells.contract import ErrorCode
from cells.domain import ids
from cells.domain.run import RunState
from cells.ports import Clock, Completion, Store
from cells.pulling import Held, PulledRun

__all__ = ["Ended", "Endings", "Said"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A worker's word about a claim."""

    held: Held
    ending: Ending


class Endings:
    """Writes batches of endings: the result of each, or the problem that it is."""

    def __init__(
        self,
        store: Store,
        feed: QueueFeed,
        clock: Clock,
        host_id: Callable[[], int],
        handed_out: HandedOut | None = None,
    ):
        self._store = store
        self._handed_out = handed_out if handed_out is not None else HandedOut()
        self._feed = feed
        self._clock = clock
        self._host_id = host_id
        self._random = random.Random()  # jitter needs no secrecy

    async def write(self, said: Sequence[Said]) -> Sequence[Ended | Problem]:
        """All of them in one transaction, each by itself."""
        results: list[Ended | Problem] = [not_found("run")] * len(said)
        runs = await self._runs(said)
        now_ms = self._clock.now_ms()
        writing: list[int] = []
        completions: list[Completion] = []
        again: list[int] = []
        claimed: set[tuple[int, int, datetime, int]] = set()
        for n, (one, run) in enumerate(zip(said, runs, strict=True)):
            if run is None:
                continue
            key = one.held.key
            place = (one.held.tenant_id.int, key.parent_id.int, key.scheduled_for, key.ordinal)
            if run.state is not RunState.RUNNING or run.claim.epoch != one.held.epoch or place in claimed:
                again.append(n)
            elif one.ending.outcome is Outcome.CANCELLED and not run.cancel_requested:
                results[n] = conflict("Nobody cancelled this run; say FAILED, or release it.")
            else:
                claimed.add(place)
                writing.append(n)
                completions.append(
                    ending_completion(run, one.ending, finished_ms=now_ms, rand=self._random.random())
                )
        if completions:
            applied = await self._store.complete(completions, host_id=self._host_id())
            self._feed.add(applied.retries)
            for n, completion, state in zip(writing, completions, applied.states, strict=True):
                if state is None:
                    again.append(n)
                    continue
                waits = state is RunState.RETRY_WAIT
                results[n] = Ended(
                    state=state,
                    attempt=completion.attempt.number,
                    next_attempt_at=completion.timer_at if waits else None,
                    region_policy=completion.region_policy,
                )
        if again:
            # Said before, perhaps a moment ago in this very batch; or the claim is somebody else's.
            fresh = await self._store.pulled_runs([said[n].held for n in again])
            for n, run in zip(again, fresh, strict=True):
                results[n] = _repeated(said[n], run)
        return results

    async def _runs(self, said: Sequence[Said]) -> list[PulledRun | None]:
        """Those that are known; the others, and those of which a cancel is said to have been asked for, are
        read."""
        runs: list[PulledRun | None] = [
            self._handed_out.take(one.held) if one.ending.outcome is not Outcome.CANCELLED else None
            for one in said
        ]
        unknown = [n for n, run in enumerate(runs) if run is None]
        if unknown:
            read = await self._store.pulled_runs([said[n].held for n in unknown])
            for n, run in zip(unknown, read, strict=True):
                runs[n] = run
        return runs


def _repeated(said: Said, run: PulledRun | None) -> Ended | Problem:
    if run is None:
        return not_found("run")
    before = said_before(run, said.ending)
    if before is not None:
        return before
    run_id = ids.run_id(said.held.key)
    return conflict(
        f"The run {run_id} is not held under this epoch (any more); nothing was changed.",
        ErrorCode.EPOCH_SUPERSEDED,
        reason=ErrorCode.EPOCH_SUPERSEDED.value,
    )
