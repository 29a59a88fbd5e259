"""How punctual the whole cell was in a span of time, and what it may have done twice."""

from __future__ import annotations

from datetime import datetime

from cells.domain.ids import RunKey
from cells.insight import Punctuality, Repeated
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row

#: Repeated runs that are told one by one; all of them are counted.
REPEATED_LIMIT = 1_000


class Punctual(StoreBase):
    """Reads of all tenants' runs of a short span."""

    async def punctuality(self, *, since: datetime, until: datetime, claims: int) -> Punctuality:
        """See `insight.InsightStore.punctuality`."""
        asked = {"since": since, "until": until, "claims": claims, "limit": REPEATED_LIMIT}
        async with self._database.transaction() as connection:
            due, began, once, late, refused, repeated, first = await fetch_row(
                connection, "cell_punctuality", asked
            )
            rows = await fetch_all(connection, "cell_punctuality_repeated", asked) if repeated else []
        p50, p99, most = late if late is not None else (None, None, None)
        return Punctuality(
            due=due,
            began=began,
            once=once,
            late_p50_ms=p50,
            late_p99_ms=p99,
            late_max_ms=most,
            refused=refused,
            repeated=repeated,
            first_began_at=first,
            repeats=[
                Repeated(
                    tenant_id=tenant,
                    key=RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal),
                    state=state,
                    lost=lost,
                )
                for tenant, parent, at, ordinal, state, lost in rows
            ],
        )
