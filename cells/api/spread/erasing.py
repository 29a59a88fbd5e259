"""Erasing a tenant from all stores of a cell: each removes its own rows, files and queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cells.stores.registry import LocalStore

if TYPE_CHECKING:
    from cells.api.routing import Call


async def erased_everywhere(
    call: Call, own: Mapping[str, object], *, erasure_id: str
) -> Mapping[str, object]:
    """What the cell's own store did of an erasure, and beside it what each local store did that was asked for
    the same. All are asked, as what says who uses which is erased, too; it is done once all of them are."""
    elsewhere = call.services.elsewhere
    if elsewhere is None or not elsewhere.registry:
        return own
    path: str = call.scope["raw_path"].decode("latin-1")

    async def told(store: LocalStore) -> dict[str, Any]:
        answer = await elsewhere.told_by(store, "POST", path, {"erasure_id": erasure_id})
        where = {"store": store.number, "region": store.region}
        if answer is None:
            why = f"{store.region} does not answer: what is kept there alone is erased when it does"
            return where | {"reached": False, "done": False, "why": why, "removed": {}, "erased_at": None}
        return where | {"reached": True} | answer

    stores = await asyncio.gather(*(told(store) for store in elsewhere.registry))
    waits = [str(each["why"]) for each in (own, *stores) if not each["done"]]
    return {**own, "done": not waits, "why": "; ".join(waits), "own_done": own["done"], "stores": stores}
