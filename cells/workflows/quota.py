"""How many steps a second the workflows of a tenant may begin: over it they begin later, never not."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

#: A tenant that begins nothing saves up this many seconds of its quota.
_SAVED_SECONDS = 1.0


class StepQuota:
    """One bucket per tenant, for this engine's share of the shards: a tenant's workflows are spread
    evenly over all of them."""

    def __init__(self) -> None:
        self._buckets: dict[uuid.UUID, tuple[float, float, float]] = {}  # tokens, as of, rate

    def begun(self, tenant_id: uuid.UUID, steps: int, *, rate: float, now: float) -> None:
        """So many steps have begun. `now`: seconds on a steady clock."""
        most = rate * _SAVED_SECONDS
        tokens, at, _ = self._buckets.get(tenant_id, (most, now, rate))
        self._buckets[tenant_id] = (min(most, tokens + (now - at) * rate) - steps, now, rate)

    def changed(self, rates: Mapping[uuid.UUID, float], now: float) -> None:
        """What tenants that wait have for a quota now. Nothing of theirs begins, so nobody else would say."""
        for tenant, rate in rates.items():
            if tenant in self._buckets:
                tokens, at, before = self._buckets[tenant]
                self._buckets[tenant] = (tokens + (now - at) * before, now, rate)

    def over(self, now: float) -> tuple[list[uuid.UUID], float | None]:
        """Tenants that have to wait, and the seconds until the first of them need not."""
        waiting: list[uuid.UUID] = []
        soonest: float | None = None
        for tenant, (tokens, at, rate) in list(self._buckets.items()):
            now_has = tokens + (now - at) * rate
            if now_has >= rate * _SAVED_SECONDS and rate > 0:
                del self._buckets[tenant]  # it owes nothing
            elif now_has < 0:
                waiting.append(tenant)
                # A quota of nothing may be raised: it is looked at again.
                left = -now_has / rate if rate > 0 else _SAVED_SECONDS
                soonest = left if soonest is None else min(soonest, left)
        return waiting, soonest
