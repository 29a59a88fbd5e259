"""The feeds of many tenants at once, for the control plane's notifications."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.responses import Response

from cells.api.events import event_document
from cells.api.problems import body_fault, invalid
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.feeds import of_all_stores, places_in
from cells.contract import Scope
from cells.domain import ids
from cells.domain.ids import MAIN_STORE
from cells.happenings import Asked

routes = Routes("Internal")

#: Tenants of one request, and events looked at for each.
MOST_TENANTS, LOOKS = 500, 500


class _Reader(msgspec.Struct, frozen=True, kw_only=True):
    """How far a tenant's events were read; without a place, those since an instant."""

    tenant_id: str
    since: datetime
    after: list[int] | None = None


class ReadIn(msgspec.Struct, frozen=True, kw_only=True):
    """Whose events, and which."""

    tenants: list[_Reader]
    types: list[str]


@routes.add(
    "POST",
    "/internal/events:read",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Events behind each tenant's place, and how far they were looked at.", None)},
)
async def read_events(call: Call) -> Response:
    """Read the events of several tenants behind their places. A place is (epoch, transaction, number) and
    safe: nothing is ever added before it. Behind it come number and place of each local store that the tenant
    uses. `more`: looking on at once finds more. `epoch`: of the cell."""
    try:
        asked = msgspec.json.decode(call.raw_body, type=ReadIn)
    except msgspec.DecodeError as fault:
        raise invalid([body_fault("", str(fault))]) from None
    if len(asked.tenants) > MOST_TENANTS:
        raise invalid([body_fault("/tenants", f"are at most {MOST_TENANTS}")])
    readers = []
    for n, one in enumerate(asked.tenants):
        tenant = ids.decode(ids.TENANT, one.tenant_id)
        if tenant is None or one.since.tzinfo is None:
            raise invalid([body_fault(f"/tenants/{n}", "names no tenant, or no instant")])
        places = places_in(one.after or ())
        if places is None:
            raise invalid([body_fault(f"/tenants/{n}/after", "is no place")])
        after = msgspec.convert(places.get(MAIN_STORE), tuple[int, int, int] | None)
        readers.append(Asked(tenant_id=tenant, after=after, since=one.since))
    services, store = call.services, call.services.store
    found = await store.events_of_many(readers, types=asked.types, looks=LOOKS)
    own = [
        {
            "tenant_id": ids.encode(ids.TENANT, tenant),
            "reached": theirs.reached,
            "more": theirs.more,
            "events": [event_document(row, services.settings.stores.own) for row in theirs.events],
        }
        for tenant, theirs in found.items()
    ]
    named = [msgspec.to_builtins(one) for one in asked.tenants]
    return answer(
        {
            "cell": services.settings.cell_name,
            "epoch": await store.home_epoch(),
            "items": await of_all_stores(call, named, asked.types, own),
        }
    )
