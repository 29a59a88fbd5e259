"""Events of all stores: one feed for a tenant's readers, and those of many tenants for the control plane.

Each store's feed has places of its own, before which nothing is ever added. A reader's cursor holds one for
each store, so that nothing is lost or told twice, whatever the stores' clocks say.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from starlette.responses import Response

from cells.api.routing import Call, answer
from cells.api.spread.asked import Asked, document_of, response_of
from cells.api.spread.merging import Place, read_places, write_places
from cells.domain import ids
from cells.domain.ids import MAIN_STORE
from cells.stores.link import Unreachable
from cells.stores.registry import LocalStore

_START = "start"
#: A reader that waits does so here, and looks into the other stores this often (seconds).
_SLICE_SECONDS = 1
#: Stands for no place in a store's feed: it is read from the reader's instant on.
NOWHERE = (-1, 0, 0)
_PLACE, _ENTRY = len(NOWHERE), 1 + len(NOWHERE)


# --- one tenant's feed ---------------------------------------------------------------------
async def events(asked: Asked) -> Response:
    """`GET /v1/events`. A store that does not answer is named, and read on from where it was."""
    stores = await asked.used()
    query = asked.given["query"]
    places = {number: place.cursor for number, place in read_places(query.cursor).items()}
    if not stores:
        return await asked.here(query=query.model_copy(update={"cursor": places.get(MAIN_STORE)}))
    if places:
        # Stores that came into use since then, and those that were silent: all they have is news.
        for number in (MAIN_STORE, *(store.number for store in stores)):
            places.setdefault(number, _START)
    feed = _Feed(asked, stores, places)
    left, waits = query.wait, 0
    while True:
        pages = await feed.pages(query.limit, waits)
        if isinstance(pages, Response):
            return pages
        left -= waits
        if not places or left <= 0 or any(page["items"] or page["more"] for page in pages.values()):
            return await feed.shown(pages, query.limit)
        feed.places.update({number: page["next_cursor"] for number, page in pages.items()})
        waits = min(left, _SLICE_SECONDS)


class _Feed:
    def __init__(self, asked: Asked, stores: Sequence[LocalStore], places: dict[int, str | None]) -> None:
        self._asked, self._stores, self.places = asked, stores, places
        self._newest = not places
        self._silent: set[str] = set()

    async def pages(self, limit: int, waits: int) -> dict[int, Any] | Response:
        """The next page of every store that answers; what one of them refuses, all do."""
        self._silent.clear()
        own = await self._own(limit, waits)
        found = await asyncio.gather(*(self._other(store, limit) for store in self._stores))
        refused = next((each for each in found if isinstance(each, Response)), None)
        if refused is not None:
            return refused
        told = zip(self._stores, found, strict=True)
        return {MAIN_STORE: own} | {store.number: page for store, page in told if page is not None}

    async def _own(self, limit: int, waits: int) -> Any:
        changed = {"cursor": self.places.get(MAIN_STORE), "limit": limit, "wait": waits}
        query = self._asked.given["query"].model_copy(update=changed)
        return document_of(await self._asked.here(query=query))

    async def _other(self, store: LocalStore, limit: int) -> Any:
        query = {"cursor": self.places.get(store.number), "limit": str(limit), "wait": None}
        try:
            reply = await self._asked.ask(store, query=query)
        except Unreachable:
            self._silent.add(store.region)
            return None
        if reply.status >= 500:
            self._silent.add(store.region)
            return None
        return msgspec.json.decode(reply.body) if reply.status == 200 else response_of(reply)

    async def shown(self, pages: dict[int, Any], limit: int) -> Response:
        """One page of all stores, oldest first."""
        items, taken = in_order(pages, limit=limit, newest=self._newest)
        more = any(page["more"] for page in pages.values())
        if not self._newest:
            more = more or any(taken[number] < len(page["items"]) for number, page in pages.items())
            pages = await self._cut(pages, taken)
            items, _ = in_order(pages, limit=limit, newest=False)
        following = self.places | {number: page["next_cursor"] for number, page in pages.items()}
        places = {number: Place(cursor) for number, cursor in following.items()}
        shown: dict[str, Any] = {"items": items, "next_cursor": write_places(places), "more": more}
        if self._silent:
            shown["unreachable_regions"] = sorted(self._silent)
        return answer(shown)

    async def _cut(self, pages: dict[int, Any], taken: Mapping[int, int]) -> dict[int, Any]:
        """The same pages with no more items than were taken, and where they end. A feed only grows at its
        end, so a shorter page has the same items."""
        cut: dict[int, Any] = {}
        for number, page in pages.items():
            if taken[number] == len(page["items"]):
                cut[number] = page
            elif taken[number]:
                store = next((one for one in self._stores if one.number == number), None)
                short = await (
                    self._own(taken[number], 0) if store is None else self._other(store, taken[number])
                )
                if short is not None and not isinstance(short, Response):
                    cut[number] = short
        return cut


def in_order(
    pages: Mapping[int, Any], *, limit: int, newest: bool
) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The first events of all pages by their instants, or the last ones, and how many each store gave. Each
    store's own order is kept."""
    streams = [
        [(datetime.fromisoformat(item["at"]), number, n, item) for n, item in enumerate(page["items"])]
        for number, page in sorted(pages.items())
    ]
    merged = list(heapq.merge(*streams, key=lambda found: found[:3]))
    chosen = merged[-limit:] if newest else merged[:limit]
    taken = dict.fromkeys(pages, 0)
    for _, number, _, _ in chosen:
        taken[number] += 1
    return [item for *_, item in chosen], taken


# --- many tenants' feeds -------------------------------------------------------------------
def places_in(after: Sequence[int]) -> dict[int, Sequence[int]] | None:
    """A reader's place by store: that of the cell's own store, then number and place of each other; None for
    what is no such thing."""
    if after and (len(after) - _PLACE) % _ENTRY:
        return None
    places = {MAIN_STORE: after[:_PLACE]} if after else {}
    return places | {after[n]: after[n + 1 : n + _ENTRY] for n in range(_PLACE, len(after), _ENTRY)}


def place_of(places: Mapping[int, Sequence[int]]) -> list[int]:
    """The same as one list, as its reader keeps it."""
    flat = list(places.get(MAIN_STORE, NOWHERE))
    for number, place in sorted(places.items()):
        if number != MAIN_STORE:
            flat += [number, *place]
    return flat


async def of_all_stores(
    call: Call, readers: Sequence[Mapping[str, Any]], types: Sequence[str], own: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What the cell's own store and the others have for some readers. `own`: the former's items. Those of a
    store that does not answer come later: its places stay where they are."""
    places = {reader["tenant_id"]: places_in(reader["after"] or ()) or {} for reader in readers}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for number, items in [(MAIN_STORE, own), *await _of_others(call, readers, types, places)]:
        for item in items:
            places[item["tenant_id"]][number] = item["reached"]
            found.setdefault(item["tenant_id"], []).append(item)
    return [
        {
            "tenant_id": tenant,
            "reached": place_of(places[tenant]),
            "more": any(item["more"] for item in items),
            "events": [event for item in items for event in item["events"]],
        }
        for tenant, items in found.items()
    ]


async def _of_others(
    call: Call,
    readers: Sequence[Mapping[str, Any]],
    types: Sequence[str],
    places: Mapping[str, Mapping[int, Sequence[int]]],
) -> list[tuple[int, Sequence[Mapping[str, Any]]]]:
    services = call.services
    if services.elsewhere is None or services.local is None:
        return []
    named = {ids.decode(ids.TENANT, reader["tenant_id"]): reader for reader in readers}
    users: dict[int, list[dict[str, Any]]] = {}
    for tenant, number in await services.local.local_stores_among([one for one in named if one is not None]):
        reader = named[tenant]
        place = places[reader["tenant_id"]].get(number)
        users.setdefault(number, []).append({**reader, "after": place})
    asked = [(store, users[store.number]) for store in services.elsewhere.registry if store.number in users]
    answers = await asyncio.gather(
        *(
            services.elsewhere.told_by(
                store, "POST", "/internal/events:read", {"tenants": theirs, "types": types}
            )
            for store, theirs in asked
        )
    )
    return [
        (store.number, told["items"])
        for (store, _), told in zip(asked, answers, strict=True)
        if told is not None
    ]
