"""Lists by keyset: `?limit=&cursor=`, `next_cursor` in the body, `Link: rel="next"`.

A cursor holds the last row's sort key; it is opaque to clients and checked when it comes back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.problems import bad_parameter

MOST = 200
USUAL = 50


def limit_of(request: Request) -> int:
    """How many items are wanted."""
    text = request.query_params.get("limit", str(USUAL))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST):
        raise bad_parameter("limit", f"a whole number from 1 to {MOST}")
    return int(text)


def encode_cursor(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(values))).decode().rstrip("=")


def decode_cursor(text: str, length: int) -> list[str]:
    """The values of a cursor of that many parts, as text."""
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        values = msgspec.json.decode(raw, type=list[str])
    except (ValueError, binascii.Error, msgspec.DecodeError) as e:
        raise bad_parameter("cursor", "not a cursor of this list") from e
    if len(values) != length or any("\0" in value for value in values):
        raise bad_parameter("cursor", "not a cursor of this list")
    return values


def page_response(request: Request, items: Sequence[Any], next_cursor: str | None) -> Response:
    """The body and the Link header of one page."""
    response = Response({"items": items, "next_cursor": next_cursor})
    if next_cursor is not None:
        query = {**request.query_params.dict(), "cursor": next_cursor}
        response["Link"] = f'<{settings.PUBLIC_API_URL}{request.path}?{urlencode(query)}>; rel="next"'
    return response


def keyset_page(
    request: Request,
    queryset: QuerySet[Any],
    fields: Sequence[str],
    show: Callable[[Any], Any],
    *,
    newest_first: bool = False,
) -> Response:
    """One page in the order of `fields`, which together are unique and never null."""
    limit = limit_of(request)
    if (cursor := request.query_params.get("cursor")) is not None:
        try:
            queryset = queryset.filter(_behind(fields, decode_cursor(cursor, len(fields)), newest_first))
        except (ValidationError, ValueError) as e:
            raise bad_parameter("cursor", "not a cursor of this list") from e
    order = [f"-{f}" for f in fields] if newest_first else list(fields)
    rows: list[Model] = list(queryset.order_by(*order)[: limit + 1])
    more = len(rows) > limit
    rows = rows[:limit]
    last = [_text(getattr(rows[-1], f)) for f in fields] if more else None
    return page_response(request, [show(r) for r in rows], encode_cursor(last) if last else None)


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _behind(fields: Sequence[str], values: Sequence[str], newest_first: bool) -> Q:
    """(a, b) > (x, y) as (a > x) or (a = x and b > y)."""
    compare = "lt" if newest_first else "gt"
    behind = Q()
    for i, field in enumerate(fields):
        same = dict(zip(fields[:i], values[:i], strict=True))
        behind |= Q(**same, **{f"{field}__{compare}": values[i]})
    return behind
