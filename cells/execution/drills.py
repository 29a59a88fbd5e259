"""The idempotency drill: calls delivered twice on purpose, with the same key and the same token.

A target copes if it answers the second delivery as it answered the first, or says that it knows it
already (208, 409). Deliveries of a drill are no attempts: they change no run, and are not metered.
"""

from __future__ import annotations

from cells.domain.outcome import classify
from cells.domain.run import AttemptOutcome
from cells.execution.recording import Answer
from cells.limits import Drill, TargetKey
from cells.ports import Retryable, Store

_KNOWN_ALREADY = frozenset({208, 409})


def coped(second: Answer) -> bool:
    """Whether a target that had succeeded took the repeat as one."""
    succeeded = classify(second.status, second.error) is AttemptOutcome.SUCCEEDED
    return succeeded or (second.error is None and second.status in _KNOWN_ALREADY)


class Drills:
    """Gathers what came of duplicates; written about once a second."""

    def __init__(self, store: Store):
        self._store = store
        self._untold: dict[TargetKey, Drill] = {}

    def delivered(self, key: TargetKey, run_id: str, second: Answer) -> None:
        """A duplicate was answered like that."""
        well = coped(second)
        before = self._untold.get(key) or Drill(tenant_id=key[0], target_id=key[1])
        failed = (before.failed_run, before.failed_status, before.failed_error)
        run, status, error = failed if well else (run_id, second.status, second.error)
        self._untold[key] = Drill(
            tenant_id=key[0],
            target_id=key[1],
            sent=before.sent + 1,
            coped=before.coped + well,
            failed_run=run,
            failed_status=status,
            failed_error=error,
        )

    async def tell(self, host_id: int) -> None:
        """Write what was gathered. `Retryable` keeps it for the next time."""
        if not self._untold:
            return
        drills, self._untold = self._untold, {}
        try:
            await self._store.add_drills(tuple(drills.values()), host_id=host_id)
        except Retryable:
            # At most twice counted, where the answer was lost; never lost.
            self._untold = drills | self._untold
            raise
