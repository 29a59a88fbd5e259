"""Keyset pages: opaque cursors, limits, and the link to the next page.

A cursor holds the sort key of the last item and a digest of the list and its filters, so that
one from another list is refused instead of answering nonsense. It gives no right: the tenant is
always the caller's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from cells.api.problems import invalid, query_fault

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
CURSOR_LIMIT = 512
_DIGEST = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _digest(kind: str, filters: Mapping[str, Any]) -> bytes:
    asked = sorted((name, str(value)) for name, value in filters.items() if value is not None)
    return hashlib.sha256(repr((kind, asked)).encode()).digest()[:_DIGEST]


def make_cursor(kind: str, filters: Mapping[str, Any], key: Any) -> str:
    """The cursor behind an item with that sort key. `kind` names the list."""
    packed = msgspec.msgpack.encode(key)
    return base64.urlsafe_b64encode(_digest(kind, filters) + packed).decode().rstrip("=")


def read_cursor(text: str | None, kind: str, filters: Mapping[str, Any], key: Any) -> Any:
    """The sort key in a cursor, of the type `key`; None without one. A cursor of another list is a
    422."""
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = msgspec.msgpack.decode(raw[_DIGEST:], type=key)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid([query_fault("cursor", "is not a cursor of this API")]) from None
    if raw[:_DIGEST] != _digest(kind, filters):
        raise invalid([query_fault("cursor", "belongs to another list or to other filters")])
    return found


def instant_key(at: datetime) -> int:
    """An instant inside of a sort key: epoch microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def read_instant(micros: int) -> datetime:
    """The instant in a sort key; a 422 if there is no such instant."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise invalid([query_fault("cursor", "is not a cursor of this API")]) from None


def next_link(path: str, filters: Mapping[str, Any], limit: int, cursor: str | None) -> dict[str, str]:
    """The `Link` header (RFC 8288) of a page that has a successor."""
    if cursor is None:
        return {}
    asked = {name: str(value) for name, value in filters.items() if value is not None}
    return {"Link": f'<{path}?{urlencode(asked | {"limit": str(limit), "cursor": cursor})}>; rel="next"'}
