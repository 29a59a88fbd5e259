"""One page out of the pages of several stores: pure.

Each store's list is in its own order already, and has a cursor of its own. The cursor of a merged page holds
one for each store, so nothing is shown twice or left out whatever the stores' instants round to.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from cells.api.problems import invalid, query_fault
from cells.domain.ids import MAIN_STORE

_MERGED = "m."
Item = Mapping[str, Any]


class Place(msgspec.Struct, frozen=True):
    """How far a list was read in one store."""

    cursor: str | None = None  # None: from its beginning
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """What one store answered from a place on."""

    items: Sequence[Item]
    next_cursor: str | None


def read_places(cursor: str | None) -> dict[int, Place]:
    """How far each store was read; a cursor of one store's list is that of the cell's own store."""
    if cursor is None:
        return {}
    if not cursor.startswith(_MERGED):
        return {MAIN_STORE: Place(cursor)}
    text = cursor.removeprefix(_MERGED)
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(packed, type=dict[int, Place])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid([query_fault("cursor", "is not a cursor of this API")]) from None


def write_places(places: Mapping[int, Place], silent: Collection[int] = ()) -> str | None:
    """The cursor of the next page; None where all stores that answer were read to their end: nobody is to ask
    again and again for what a silent one has."""
    if all(place.ended or number in silent for number, place in places.items()):
        return None
    packed = msgspec.msgpack.encode(dict(places))
    return _MERGED + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def merge(pages: Mapping[int, Page], *, by: str, limit: int) -> tuple[list[Item], dict[int, int]]:
    """The first items of all pages, the latest first by that member, and how many each store gave."""
    streams = [
        [(_latest_first(item.get(by)), number, n, item) for n, item in enumerate(page.items)]
        for number, page in sorted(pages.items())
    ]
    # Each stream is kept as it came, even where two of its items have the same instant.
    merged = list(heapq.merge(*streams, key=lambda found: found[:3]))[:limit]
    taken = dict.fromkeys(pages, 0)
    for _, number, _, _ in merged:
        taken[number] += 1
    return [item for _, _, _, item in merged], taken


def after(place: Place, page: Page, taken: int) -> Place | None:
    """Where a store goes on once that many of a page's items were taken; None: only the store can tell."""
    if taken == len(page.items):
        return Place(page.next_cursor, ended=page.next_cursor is None)
    return place if taken == 0 else None


def _latest_first(instant: Any) -> float:
    return -datetime.fromisoformat(instant).timestamp() if isinstance(instant, str) else 0.0


def summed(groups: Sequence[Sequence[Item]], *, key: str, most: int) -> list[dict[str, Any]]:
    """Groups of dead letters of several stores: those of one fingerprint are one."""
    found: dict[Any, dict[str, Any]] = {}
    for group in (each for store in groups for each in store):
        known = found.get(group[key])
        if known is None:
            found[group[key]] = dict(group)
            continue
        known["count"] += group["count"]
        known["first_failed_at"] = min(known["first_failed_at"], group["first_failed_at"])
        known["last_failed_at"] = max(known["last_failed_at"], group["last_failed_at"])
    return sorted(found.values(), key=lambda each: -each["count"])[:most]
