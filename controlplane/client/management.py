"""The API's requests about targets, the tenant, its people, its keys and its costs. Pure, like
`calls.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from controlplane.client.documents import ApiKey, CostReport, Member, Target, Tenant, Usage
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.specs import as_body
from controlplane.client.wire import Call, if_match, path, query, without_none


# --- targets -----------------------------------------------------------------------------
def register_target(
    base_url: str,
    *,
    target_id: str | None = None,
    owner_team: str | None = None,
    description: str | None = None,
    max_concurrency: int | None = None,
    initial_concurrency: int | None = None,
    latency_slo_ms: int | None = None,
    auth: Mapping[str, Any] | None = None,
    drill_percent: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Target]:
    """Register a place to call. The answer holds its signing secret, once; it must be approved. Of its
    calls `drill_percent` are delivered twice on purpose, to see that it copes."""
    return Call(
        method="POST",
        path="/v1/targets",
        read=reads(Target),
        body=without_none(
            base_url=base_url,
            target_id=target_id,
            owner_team=owner_team,
            description=description,
            max_concurrency=max_concurrency,
            initial_concurrency=initial_concurrency,
            latency_slo_ms=latency_slo_ms,
            auth=auth,
            drill=None if drill_percent is None else {"duplicate_percent": drill_percent},
        ),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def get_target(target_id: str) -> Call[Target]:
    """A target; nothing secret."""
    return Call(method="GET", path=path("/v1/targets/{id}", id=target_id), read=reads(Target))


def list_targets(
    *, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Target]]:
    """Targets by id."""
    return Call(
        method="GET",
        path="/v1/targets",
        read=reads_page(Target),
        query=query(state=state, limit=limit, cursor=cursor),
    )


def edit_target(
    target_id: str, changes: Mapping[str, Any], *, version: int | str | None = None
) -> Call[Target]:
    """Change some members. Another `base_url` or `auth` needs a new approval."""
    return Call(
        method="PATCH",
        path=path("/v1/targets/{id}", id=target_id),
        read=reads(Target),
        body=as_body(changes),
        headers=if_match(version),
    )


def delete_target(target_id: str) -> Call[None]:
    """Take a target away. Refused while jobs use it."""
    return Call(method="DELETE", path=path("/v1/targets/{id}", id=target_id), read=lambda answer: None)


def approve_target(target_id: str, *, version: int | str | None = None) -> Call[Target]:
    """Allow jobs to call it. `version`: only if it is still what was looked at, else
    `PreconditionFailed`."""
    return Call(
        method="POST",
        path=path("/v1/targets/{id}", id=target_id) + ":approve",
        read=reads(Target),
        headers=if_match(version),
        repeatable=version is None,
    )


def rotate_target_secret(target_id: str, *, overlap_seconds: int | None = None) -> Call[Target]:
    """A new signing secret, shown once. Calls carry both signatures during the overlap (a day)."""
    return Call(
        method="POST",
        path=path("/v1/targets/{id}", id=target_id) + ":rotate-secret",
        read=reads(Target),
        body=without_none(overlap_seconds=overlap_seconds),
    )


# --- tenant ------------------------------------------------------------------------------
def get_tenant() -> Call[Tenant]:
    """Whom the key belongs to."""
    return Call(method="GET", path="/v1/tenant", read=reads(Tenant))


def edit_tenant(changes: Mapping[str, Any], *, version: int | str | None = None) -> Call[Tenant]:
    """Change the name or the defaults (a JSON merge patch)."""
    return Call(
        method="PATCH",
        path="/v1/tenant",
        read=reads(Tenant),
        body=as_body(changes),
        headers=if_match(version),
    )


# --- members -----------------------------------------------------------------------------
def list_members(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Member]]:
    """The people of the tenant."""
    return Call(
        method="GET", path="/v1/members", read=reads_page(Member), query=query(limit=limit, cursor=cursor)
    )


def get_member(member_id: str) -> Call[Member]:
    """One person."""
    return Call(method="GET", path=path("/v1/members/{id}", id=member_id), read=reads(Member))


def add_member(
    email: str,
    role: str,
    *,
    name: str | None = None,
    may_see_payloads: bool | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Member]:
    """Add a person as admin, developer or viewer."""
    return Call(
        method="POST",
        path="/v1/members",
        read=reads(Member),
        body=without_none(
            email=email, role=role, name=name, may_see_payloads=may_see_payloads, reason=reason
        ),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def edit_member(
    member_id: str,
    *,
    role: str | None = None,
    may_see_payloads: bool | None = None,
    reason: str | None = None,
    version: int | str | None = None,
) -> Call[Member]:
    """Another role, or payload sight."""
    return Call(
        method="PATCH",
        path=path("/v1/members/{id}", id=member_id),
        read=reads(Member),
        body=without_none(role=role, may_see_payloads=may_see_payloads, reason=reason),
        headers=if_match(version),
    )


def remove_member(member_id: str) -> Call[None]:
    """Take a person out of the tenant."""
    return Call(method="DELETE", path=path("/v1/members/{id}", id=member_id), read=lambda answer: None)


# --- API keys ----------------------------------------------------------------------------
def list_api_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[ApiKey]]:
    """Keys, live and gone, oldest first."""
    return Call(
        method="GET", path="/v1/api-keys", read=reads_page(ApiKey), query=query(limit=limit, cursor=cursor)
    )


def get_api_key(key_id: str) -> Call[ApiKey]:
    """One key, without its text."""
    return Call(method="GET", path=path("/v1/api-keys/{id}", id=key_id), read=reads(ApiKey))


def create_api_key(
    name: str,
    scopes: Sequence[str],
    *,
    expires_at: datetime | str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[ApiKey]:
    """A new key; its text is in `api_key`, this once."""
    return Call(
        method="POST",
        path="/v1/api-keys",
        read=reads(ApiKey),
        body=without_none(name=name, scopes=list(scopes), expires_at=as_body(expires_at), reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def rotate_api_key(
    key_id: str,
    *,
    grace_seconds: int | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[ApiKey]:
    """A successor with the same rights; the old key goes on for the grace period (a day)."""
    return Call(
        method="POST",
        path=path("/v1/api-keys/{id}", id=key_id) + ":rotate",
        read=reads(ApiKey),
        body=without_none(grace_seconds=grace_seconds, reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def revoke_api_key(key_id: str, *, reason: str | None = None) -> Call[ApiKey]:
    """End a key, within seconds everywhere."""
    return Call(
        method="POST",
        path=path("/v1/api-keys/{id}", id=key_id) + ":revoke",
        read=reads(ApiKey),
        body=without_none(reason=reason),
        repeatable=True,
    )


# --- usage and cost ----------------------------------------------------------------------
def read_usage(
    *,
    since: date | str | None = None,
    until: date | str | None = None,
    by: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[Usage]:
    """Usage by `day`, `metric`, `region_policy` or `job`; both days are included. The last 31 days by day
    if nothing is said. Where there is a `next_cursor`, ask again with it as `cursor`."""
    return Call(
        method="GET",
        path="/v1/usage",
        read=reads(Usage),
        query=query(from_=since, to=until, by=by, cursor=cursor, limit=limit),
    )


def daily_cost(*, since: date | str | None = None, until: date | str | None = None) -> Call[CostReport]:
    """Cost by day; both days are included."""
    return Call(
        method="GET",
        path="/v1/cost-reports/daily",
        read=reads(CostReport),
        query=query(from_=since, to=until),
    )
