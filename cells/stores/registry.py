"""Which stores a cell has beside the replicated one: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from cells.domain.ids import MAIN_STORE

#: Ids have eight bits for the number of their store.
HIGHEST = 255
#: Of each quota of a tenant, a local store that holds rows of it has one part in so many.
PARTS = 4
_REGION = re.compile(r"[A-Za-z0-9-]{1,63}")


class LocalStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store that no other region has a copy of."""

    number: int  # in the ids of its rows, for good
    region: str
    url: str  # of the API in front of it


@dataclass(frozen=True, kw_only=True)
class Registry:
    """All stores of a cell, as one process of it knows them."""

    own: int = MAIN_STORE
    local: tuple[LocalStore, ...] = field(default=())

    def __iter__(self) -> Iterator[LocalStore]:
        return iter(self.local)

    def __bool__(self) -> bool:
        """Whether there is any other."""
        return bool(self.local)

    def get(self, number: int) -> LocalStore | None:
        """The local store of that number."""
        return next((store for store in self.local if store.number == number), None)

    def home(self, region: str) -> LocalStore | None:
        """Where what is to stay in a region is kept: that region's store; the first one, where the cell
        began, for tenants whose home has no site of this cell. None in a cell without local stores."""
        found = next((store for store in self.local if store.region == region), None)
        return found or (self.local[0] if self.local else None)


def parse_stores(text: str) -> tuple[LocalStore, ...]:
    """The stores in JSON, by number; `ValueError` says what is wrong."""
    try:
        found = msgspec.json.decode(text, type=list[LocalStore])
    except msgspec.MsgspecError as fault:
        raise ValueError(f"a JSON list of number, region and url: {fault}") from None
    for store in found:
        if not MAIN_STORE < store.number <= HIGHEST:
            raise ValueError(f"numbers are 1 to {HIGHEST}; {store.number} is not")
        if not _REGION.fullmatch(store.region):
            raise ValueError(f"{store.region!r} is no region")
        if urlsplit(store.url).scheme not in ("http", "https"):
            raise ValueError(f"the URL of store {store.number} is not http or https")
    for name in ("number", "region"):
        if len({getattr(store, name) for store in found}) < len(found):
            raise ValueError(f"two stores have the same {name}")
    return tuple(sorted(found, key=lambda store: store.number))
