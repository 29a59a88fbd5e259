"""Who a request speaks for: a Bearer key, its tenant, its scopes. Pure; time is passed in."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cells.contract import TENANT_SCOPES, ErrorCode, Scope
from controlplane.routing.refusal import Refusal
from controlplane.routing.table import Key, Table

_LONGEST_KEY = 256
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="clockhouse"'),)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Scopes whose use in a write needs a table that is known to be recent.
PRIVILEGED = frozenset({Scope.ADMIN.value, Scope.OPERATOR.value, Scope.TARGETS_APPROVE.value})
#: Compared with when there is no such key, so that both cases take the same time.
_NOBODY = Key(sha256="0" * 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """An authenticated caller. `tenant_id` is empty for an operator who names no tenant."""

    key_id: str
    tenant_id: str
    scopes: tuple[str, ...]
    operator: bool

    @property
    def actor(self) -> str:
        return f"key:{self.key_id}"


def key_id_of(text: str) -> str | None:
    """The public part of a key `ch_live_<id>_<secret>` or `ch_op_<id>_<secret>`."""
    parts = text.split("_")
    if len(parts) != 4 or parts[0] != "ch" or parts[1] not in ("live", "op"):
        return None
    return parts[2] if parts[2] and parts[3] else None


def authenticate(
    table: Table,
    *,
    authorization: list[bytes],
    tenant_header: list[bytes],
    method: str,
    now_ms: int,
    stale: bool,
) -> Principal:
    """The caller, or a `Refusal`: 401, 403, 400, or 503 where the table is too old to tell.

    From a stale table a write gets only the scopes that are not privileged.
    """
    if not authorization:
        raise Refusal(
            401,
            ErrorCode.UNAUTHENTICATED,
            "Send an API key: `Authorization: Bearer ch_live_...`.",
            headers=_CHALLENGE,
        )
    key_id, key = _known_key(table, authorization)
    if key.expires_at_ms is not None and key.expires_at_ms <= now_ms:
        raise _unauthenticated("This API key has expired. Create a new one in the console.")
    tenant_id = _acting_for(key, tenant_header)
    scopes = key.scopes
    if stale and method not in _SAFE_METHODS:
        scopes = _unprivileged(scopes)
    return Principal(key_id=key_id, tenant_id=tenant_id, scopes=scopes, operator=key.tenant_id is None)


def _unprivileged(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """What a key may still write while nobody can say whether it was revoked: an `admin` key
    keeps making jobs, but approves no target and changes no member."""
    if Scope.OPERATOR in scopes:
        raise Refusal(
            503,
            ErrorCode.UNAVAILABLE,
            "The list of valid keys is too old for writes of operators. Retry later.",
            retry_after_s=30,
        )
    held = set(scopes) | (set(map(str, TENANT_SCOPES)) if Scope.ADMIN in scopes else set())
    return tuple(sorted(held - PRIVILEGED))


def _unauthenticated(detail: str) -> Refusal:
    return Refusal(401, ErrorCode.UNAUTHENTICATED, detail, headers=_CHALLENGE)


def _known_key(table: Table, authorization: list[bytes]) -> tuple[str, Key]:
    raw = authorization[0]
    scheme, _, rest = raw.partition(b" ")
    text = rest.strip()
    if (
        len(authorization) > 1
        or scheme.lower() != b"bearer"
        or len(text) > _LONGEST_KEY
        or not text.isascii()
    ):
        raise _unauthenticated("The Authorization header is not `Bearer <API key>`.")
    key_id = key_id_of(text.decode())
    key = table.keys.get(key_id) if key_id else None
    digest = hashlib.sha256(text).hexdigest()
    matches = hmac.compare_digest(digest, (key or _NOBODY).sha256)
    if key_id is None or key is None or not matches:
        raise _unauthenticated("This API key is not known, or was revoked.")
    return key_id, key


def _acting_for(key: Key, tenant_header: list[bytes]) -> str:
    named = {value.decode("latin-1").strip() for value in tenant_header}
    if len(named) > 1:
        raise Refusal(400, ErrorCode.MALFORMED, "X-Tenant-Id is given more than once.")
    wanted = next(iter(named), "")
    if key.tenant_id is not None:
        if wanted and wanted != key.tenant_id:
            raise Refusal(403, ErrorCode.FORBIDDEN, "X-Tenant-Id is not the tenant of this API key.")
        return key.tenant_id
    if Scope.OPERATOR.value not in key.scopes:
        raise Refusal(403, ErrorCode.FORBIDDEN, "This API key belongs to no tenant.")
    return wanted
