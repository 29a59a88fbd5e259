"""Checks the signatures of what routers and cells send us."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import quote

from django.http import HttpRequest

from cells.contract import BODY_HASH_HEADER, UNSIGNED_BODY, BadSignature, Caller, body_hash, verify_request

# What may stand unescaped in a path (RFC 3986); the router signs paths in this form.
_PATH_SAFE = "/-._~!$&'()*+,;=:@"
ROUTER_KID = "router"


def signed_target(request: HttpRequest) -> str:
    """The request target as it was signed. WSGI hands us the path decoded, so it is encoded
    again in the one canonical way."""
    path = quote(request.path, safe=_PATH_SAFE)
    query = request.META.get("QUERY_STRING", "")
    return f"{path}?{query}" if query else path


def verify(request: HttpRequest, keys: Mapping[str, bytes], *, whole_body: bool = False) -> Caller:
    """The caller, or `BadSignature`. With `whole_body` the body must be covered as well."""
    caller = verify_request(
        keys=keys,
        now_ms=time.time_ns() // 1_000_000,
        method=request.method or "",
        target=signed_target(request),
        headers=request.headers,
    )
    claimed = request.headers.get(BODY_HASH_HEADER, UNSIGNED_BODY)
    if claimed == UNSIGNED_BODY:
        if whole_body and request.body:
            raise BadSignature("the body is not signed")
    elif claimed != body_hash(request.body):
        raise BadSignature("the body is not what was signed")
    return caller
