"""Lists: one page of all stores that may hold rows of the tenant, in the order of each."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from cells.api import pagination
from cells.api.routing import answer
from cells.api.spread.asked import Asked, document_of, response_of
from cells.api.spread.merging import Page, Place, after, merge, read_places, summed, write_places
from cells.domain.ids import MAIN_STORE
from cells.stores.link import Unreachable
from cells.stores.registry import LocalStore

#: A list that changes while its page is put together is looked at again this often.
_TRIES = 3
_GROUPS = 50
#: By which member a list is ordered, the latest first.
ORDERED: dict[str, str] = {
    "/v1/jobs": "created_at",
    "/v1/runs": "scheduled_for",
    "/v1/dlq": "failed_at",
    "/v1/backfills": "created_at",
    "/v1/redrives": "created_at",
    "/v1/operations": "created_at",
    "/v1/workflows": "started_at",
    "/v1/workflows/reconciliation": "started_at",
}


async def merged(asked: Asked) -> Response:
    """One page of all stores. Those that do not answer are named in `unreachable_regions`."""
    stores = await asked.used()
    if not stores:
        return await asked.here()
    query = asked.given["query"]
    places = read_places(query.cursor)
    for number in (MAIN_STORE, *(store.number for store in stores)):
        places.setdefault(number, Place())
    lister = _Lister(asked, {store.number: store for store in stores})
    for last in (False,) * (_TRIES - 1) + (True,):
        documents = await lister.pages(places, query.limit)
        if isinstance(documents, Response):
            return documents  # what one of them refuses, all do
        pages = {n: Page(items=d["items"], next_cursor=d["next_cursor"]) for n, d in documents.items()}
        items, taken = merge(pages, by=ORDERED[asked.path_format], limit=query.limit)
        following = dict(places)
        if last:
            # It changes too fast to be cut in the middle: whole pages are shown.
            items, taken = merge(pages, by=ORDERED[asked.path_format], limit=sum(_lengths(pages)))
        if await _moved_on(lister, places, following, pages, taken):
            asked.silent = [lister.region(number) for number in lister.silent]
            return _shown(asked, documents, items, write_places(following, lister.silent))
    raise AssertionError("whole pages always have an end")


def _lengths(pages: dict[int, Page]) -> list[int]:
    return [len(page.items) for page in pages.values()]


async def _moved_on(
    lister: _Lister,
    places: dict[int, Place],
    following: dict[int, Place],
    pages: dict[int, Page],
    taken: dict[int, int],
) -> bool:
    """Where each store goes on; False where one of them changed meanwhile."""
    for number, page in pages.items():
        place = after(places[number], page, taken[number])
        if place is None:
            short = await lister.page(number, places[number], taken[number])
            if isinstance(short, Response) or short["items"] != page.items[: taken[number]]:
                return False
            place = Place(short["next_cursor"], ended=False)
        following[number] = place
    return True


class _Lister:
    def __init__(self, asked: Asked, stores: dict[int, LocalStore]) -> None:
        self._asked, self._stores = asked, stores
        self.silent: set[int] = set()  # stores that did not answer

    async def pages(self, places: dict[int, Place], limit: int) -> dict[int, Any] | Response:
        """The next page of every store that answers and has one."""
        open_ = [number for number, place in places.items() if not place.ended]
        self.silent.clear()
        found = await asyncio.gather(*(self.page(number, places[number], limit) for number in open_))
        refused = next((each for each in found if isinstance(each, Response)), None)
        if refused is not None:
            return refused
        return {number: each for number, each in zip(open_, found, strict=True) if each is not None}

    def region(self, number: int) -> str:
        """Where a store is."""
        return self._stores[number].region

    async def page(self, number: int, place: Place, limit: int) -> Any:
        """One store's page; a `Response` where it is refused, None where nothing answers."""
        asked = self._asked
        if number == MAIN_STORE:
            query = asked.given["query"]
            changed = query.model_copy(update={"cursor": place.cursor, "limit": limit})
            return document_of(await asked.here(query=changed))
        store = self._stores.get(number)
        if store is None:
            return None
        try:
            reply = await asked.ask(store, query={"cursor": place.cursor, "limit": str(limit)})
        except Unreachable:
            self.silent.add(number)
            return None
        if reply.status >= 500:
            self.silent.add(number)
            return None
        return msgspec.json.decode(reply.body) if reply.status == 200 else response_of(reply)


def _shown(asked: Asked, documents: dict[int, Any], items: list[Any], cursor: str | None) -> Response:
    main: dict[str, Any] = documents.get(MAIN_STORE) or next(iter(documents.values()), {})
    shown = main | {"items": items, "next_cursor": cursor}
    if "groups" in shown:
        # Only the first page has them; a store that is still at its beginning would say them again.
        told = [] if asked.given["query"].cursor is not None else [d["groups"] for d in documents.values()]
        shown["groups"] = summed(told, key="fingerprint", most=_GROUPS)
        shown["truncated"] = any(d["truncated"] for d in documents.values())
    if "looked_back_to" in shown:
        backs = [d["looked_back_to"] for d in documents.values() if d["looked_back_to"] is not None]
        shown["looked_back_to"] = max(backs, default=None)
    if asked.silent:
        shown["unreachable_regions"] = sorted(set(asked.silent))
    query = asked.given["query"]
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    return answer(shown, headers=pagination.next_link(asked.path_format, filters, query.limit, cursor))
