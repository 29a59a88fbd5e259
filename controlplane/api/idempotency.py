"""`Idempotency-Key` on creating POSTs.

The key's row is inserted in the transaction that creates: a second request with the same key
waits for the first to commit and then gets its stored answer, and a first one that fails
leaves nothing behind. Answers are sealed, as they may hold a new key's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from psycopg import errors
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from cells.contract import ErrorCode
from controlplane.api.models import IdempotencyKey
from controlplane.api.principal import principal_of
from controlplane.api.problems import Problem
from controlplane.sql import named_sql
from controlplane.topology.cell_keys import installation_sealer

KEPT_HOURS = 24
_SQL = named_sql(Path(__file__).parent / "sql" / "idempotency.sql")


def key_of(request: Request) -> str | None:
    """The key, sent bare or as a quoted string; None if there is none."""
    text = request.headers.get("Idempotency-Key")
    if text is None:
        return None
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not 0 < len(text) <= 255 or not text.isprintable() or not text.isascii():
        raise Problem(400, ErrorCode.MALFORMED, "Idempotency-Key: 1 to 255 printable characters.")
    return text


def once(request: Request, create: Callable[[], Response]) -> Response:
    """The answer of `create`, or the stored one of an earlier request with the same key."""
    key = key_of(request)
    if key is None:
        with transaction.atomic():
            return create()
    scope = str(principal_of(request).tenant_id or "operators")
    route = f"{request.method} {request.path}"[:200]
    fingerprint = hashlib.sha256(msgspec.json.encode(request.data, order="deterministic")).digest()
    found = {"scope": scope, "route": route, "key": key}
    with transaction.atomic():
        if not _first(found, fingerprint):
            return _replay(found, fingerprint)
        response = create()
        stored = msgspec.json.encode({"data": _plain(response.data), "headers": dict(response.headers)})
        IdempotencyKey.objects.filter(**found).update(
            status=response.status_code, sealed=installation_sealer().seal(stored, context=_context(found))
        )
        return response


def _first(found: dict[str, str], fingerprint: bytes) -> bool:
    """Whether the key is ours to use. Waits for another request that is using it, but not long."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SQL["wait_briefly"])
            cursor.execute(_SQL["take"], {**found, "fingerprint": fingerprint})
            taken = cursor.fetchone() is not None
            cursor.execute(_SQL["wait_normally"])
            return taken
    except OperationalError as e:
        if isinstance(e.__cause__, errors.LockNotAvailable):
            raise Problem(409, ErrorCode.IDEMPOTENCY_IN_PROGRESS, "Try again when it is done.") from e
        raise


def _replay(found: dict[str, str], fingerprint: bytes) -> Response:
    stored = IdempotencyKey.objects.get(**found)
    if bytes(stored.fingerprint) != fingerprint:
        raise Problem(422, ErrorCode.IDEMPOTENCY_KEY_REUSED, "Use another key for another request.")
    answer: dict[str, Any] = msgspec.json.decode(
        installation_sealer().open(bytes(stored.sealed), context=_context(found))
    )
    headers = {k: v for k, v in answer["headers"].items() if k.lower() in ("etag", "location")}
    return Response(answer["data"], 200, headers={**headers, "Idempotency-Replayed": "true"})


def _context(found: dict[str, str]) -> bytes:
    return f"idempotency:{found['scope']}:{found['route']}:{found['key']}".encode()


def _plain(data: Any) -> Any:
    return msgspec.to_builtins(data, enc_hook=JSONEncoder().default)


def purge() -> None:
    """Forgets answers nobody can ask for any more."""
    before = timezone.now() - timedelta(hours=KEPT_HOURS)
    IdempotencyKey.objects.filter(created_at__lt=before).delete()
