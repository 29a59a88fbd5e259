"""The API's requests about what came back with a region that was lost. Pure, like `calls.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads_page
from controlplane.client.wire import Call, query


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnedEntry(Document):
    """One thing that the region did, or somebody decided there, and what became of it."""

    region: str
    at: datetime
    kind: str
    verb: str | None
    thing: str
    id: str
    idempotency_key: str | None
    state: str | None
    times: Mapping[str, Any] | None
    outcome: str
    note: str | None
    here: Mapping[str, Any] | None


def reconciliation(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[ReturnedEntry]]:
    """What a region had done that no other had received when it was lost, oldest first, once it came back."""
    return Call(
        method="GET",
        path="/v1/regions/reconciliation",
        read=reads_page(ReturnedEntry),
        query=query(limit=limit, cursor=cursor),
    )
