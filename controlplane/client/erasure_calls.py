"""The API's requests about erasures of tenants: a tenant's own, and operators'. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none

_ALL, _OWN = "/v1/admin/erasures", "/v1/tenant/erasure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure(Document):
    """A tenant that goes for good. `certificate_link` is there in the answer to the wish only."""

    erasure_id: str
    tenant_id: str
    state: str  # REQUESTED, RUNNING, DONE, CANCELLED
    steps: Sequence[str] = ()
    steps_done: int
    why: str
    created_at: datetime | None
    due_at: datetime | None
    began_at: datetime | None
    finished_at: datetime | None
    certificate_link: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnErasure(Document):
    """What would be erased, in numbers, and the erasure that is asked for, if any."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    erasure: Erasure | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Document):
    """What was erased, what is kept and why; signed."""

    certificate: Mapping[str, Any] = field(default_factory=dict)
    sha256: str
    signature: Mapping[str, Any] = field(default_factory=dict)


def get_own() -> Call[OwnErasure]:
    """What would be erased of the tenant, and whether that is asked for."""
    return Call(method="GET", path=_OWN, read=reads(OwnErasure))


def request_own(
    *, confirm: str, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Erasure]:
    """Has the tenant erased after the time of grace. `confirm`: its short name."""
    return Call(
        method="POST", path=_OWN, read=reads(Erasure), body=without_none(confirm=confirm, reason=reason),
        keyed=True, idempotency_key=idempotency_key,
    )  # fmt: skip


def cancel_own(*, reason: str | None = None) -> Call[Erasure]:
    """The tenant is not erased."""
    return Call(
        method="POST", path=f"{_OWN}:cancel", read=reads(Erasure), body=without_none(reason=reason),
        repeatable=True,
    )  # fmt: skip


def list_erasures(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Erasure]]:
    """Erasures, the newest first."""
    return Call(method="GET", path=_ALL, read=reads_page(Erasure), query=query(limit=limit, cursor=cursor))


def get_erasure(erasure_id: str) -> Call[Erasure]:
    """How far an erasure is."""
    return Call(method="GET", path=path(_ALL + "/{id}", id=erasure_id), read=reads(Erasure))


def request_erasure(
    tenant_id: str, *, confirm: str, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Erasure]:
    """Has a tenant erased after the time of grace. `confirm`: its short name."""
    return Call(
        method="POST", path=_ALL, read=reads(Erasure),
        body=without_none(tenant_id=tenant_id, confirm=confirm, reason=reason), keyed=True,
        idempotency_key=idempotency_key,
    )  # fmt: skip


def cancel_erasure(erasure_id: str, *, reason: str | None = None) -> Call[Erasure]:
    """The tenant is not erased."""
    return Call(
        method="POST", path=path(_ALL + "/{id}", id=erasure_id) + ":cancel", read=reads(Erasure),
        body=without_none(reason=reason), repeatable=True,
    )  # fmt: skip


def get_certificate(erasure_id: str) -> Call[Certificate]:
    """The certificate, once everything is erased."""
    return Call(method="GET", path=path(_ALL + "/{id}/certificate", id=erasure_id), read=reads(Certificate))
