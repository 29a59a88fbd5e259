"""Targets: register, approve, edit, rotate secrets, delete."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from fastapi import Query
from starlette.responses import Response

from cells.api import documents, idempotency, pagination, shapes
from cells.api.finding import TargetId, check_version, found_target
from cells.api.problems import Problem, body_fault, conflict, invalid, key_reused
from cells.api.queries import TargetQuery
from cells.api.reading import Fields, read_model
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.api.target_models import AuthIn, RotateIn, TargetCreate, TargetPatch
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.execution.egress import refusal_of_url
from cells.execution.signing import SECRET_BYTES, show_secret
from cells.ports import Conflict, SealedSecret, TargetRow
from cells.secrets import target_context

routes = Routes("Targets")

SIGNING, CREDENTIAL = "SIGNING", "CREDENTIAL"
_CREATE = "POST /v1/targets"
#: How long a repeated registration is answered with the secret again.
_REPLAY = timedelta(hours=24)


# --- register ----------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/targets",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        201: ("The target, PENDING, with its signing secret: shown this once.", shapes.TargetCreated),
        200: ("The target that was registered under this Idempotency-Key.", shapes.TargetCreated),
    },
    problems=(409,),
    idempotent=True,
)
async def create_target(call: Call, body: TargetCreate) -> Response:
    """Register a target. Jobs may use it once a member with that right has approved it."""
    services = call.services
    _check_egress(call, body.base_url)
    key = idempotency.read_key(call.header(b"idempotency-key"))
    now = services.now()
    target_id = body.target_id or _made_id(call, key)
    settings = _with_drill({}, body)
    if key is not None:
        settings["registered_with"] = {
            "key": hashlib.sha256(key.encode()).hexdigest(),
            "body": idempotency.fingerprint(call.raw_body).hex(),
        }
    row = TargetRow(
        tenant_id=call.tenant_id,
        target_id=target_id,
        state="PENDING",
        version=1,
        base_url=body.base_url,
        owner_team=body.owner_team,
        description=body.description,
        max_concurrency=body.max_concurrency,
        initial_concurrency=body.initial_concurrency or body.max_concurrency,
        latency_slo_ms=body.latency_slo_ms,
        auth=_shown_auth(body.auth),
        settings=settings,
        created_by=call.caller.actor,
        created_at=now,
        updated_at=now,
        approved_by=None,
        approved_at=None,
    )
    secret = services.entropy(SECRET_BYTES)
    sealed = [_sealed(call, target_id, SIGNING, secret, now)]
    if (credential := _credential(body.auth)) is not None:
        sealed.append(_sealed(call, target_id, CREDENTIAL, credential, now))
    try:
        stored = await services.store.create_target(call.fence, row, sealed, host_id=services.host.host_id)
    except Conflict:
        return await _registered_before(call, target_id, settings)
    services.targets.forget(call.tenant_id)
    document = documents.target_document(stored) | {"secret": show_secret(secret)}
    return answer(document, 201, _headers(stored))


async def _registered_before(call: Call, target_id: str, settings: dict[str, object]) -> Response:
    """The id is taken: by this very request, sent again, or by another target."""
    row = await found_target(call, target_id)
    before, again = row.settings.get("registered_with"), settings.get("registered_with")
    if not isinstance(before, dict) or not isinstance(again, dict) or before.get("key") != again["key"]:
        raise conflict(f"There is a target {target_id} already.")
    if before.get("body") != again["body"]:
        raise key_reused()
    document = documents.target_document(row)
    secrets = await call.services.store.target_secrets(call.tenant_id, target_id)
    signing = [secret for secret in secrets if secret.purpose == SIGNING]
    if len(signing) == 1 and call.services.now() - signing[0].created_at < _REPLAY:
        context = target_context(call.tenant_id, target_id, SIGNING)
        document["secret"] = show_secret(call.services.secrets.open(signing[0].sealed, context=context))
    return answer(document, 200, _headers(row) | {"Idempotency-Replayed": "true"})


def _made_id(call: Call, key: str | None) -> str:
    if key is None:
        return ids.encode(ids.TARGET, call.services.fresh_id())
    return ids.encode(ids.TARGET, ids.derived_id(tenant_id=call.tenant_id, key=f"{_CREATE}\n{key}"))


def _check_egress(call: Call, base_url: str) -> None:
    refusal = refusal_of_url(base_url, call.services.settings.egress_allow)
    if refusal is not None:
        raise invalid([body_fault("/base_url", f"may not be called: {refusal}")])


def _with_drill(settings: dict[str, object], given: TargetCreate) -> dict[str, object]:
    rest = {name: value for name, value in settings.items() if name != "drill"}
    return rest if given.drill is None else {**rest, "drill": given.drill.model_dump()}


def _shown_auth(auth: AuthIn) -> dict[str, object]:
    """What of the auth is no secret."""
    shown: dict[str, object] = {"type": auth.type}
    if auth.username is not None:
        shown["username"] = auth.username
    if auth.secret_arn is not None:
        shown["secret_arn"] = auth.secret_arn
    return shown


def _credential(auth: AuthIn) -> bytes | None:
    secret = auth.token if auth.type == "BEARER" else auth.password
    return secret.encode() if secret is not None else None


def _sealed(call: Call, target_id: str, purpose: str, secret: bytes, now: datetime) -> SealedSecret:
    context = target_context(call.tenant_id, target_id, purpose)
    return SealedSecret(
        generation=1,  # the store counts on from those it has
        purpose=purpose,
        sealed=call.services.secrets.seal(secret, context=context),
        created_at=now,
        expires_at=None,
    )


def _headers(row: TargetRow) -> dict[str, str]:
    return {"Location": f"/v1/targets/{row.target_id}", "ETag": f'"{row.version}"'}


# --- read --------------------------------------------------------------------------------
@routes.add(
    "GET",
    "/v1/targets",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of targets.", shapes.TargetPage)},
)
async def list_targets(call: Call, query: Annotated[TargetQuery, Query()]) -> Response:
    """List targets by id."""
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "targets", filters, str)
    rows = await call.services.store.list_targets(
        call.tenant_id, state=query.state, after=after, limit=query.limit + 1
    )
    return page(
        [documents.target_document(row) for row in rows[: query.limit]],
        path="/v1/targets",
        filters=filters,
        limit=query.limit,
        cursor=pagination.make_cursor("targets", filters, rows[query.limit - 1].target_id)
        if len(rows) > query.limit
        else None,
    )


@routes.add(
    "GET",
    "/v1/targets/{target_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The target.", shapes.Target)},
    problems=(404,),
)
async def read_target(call: Call, target_id: TargetId) -> Response:
    """Read a target."""
    return _shown(await found_target(call, target_id))


def _shown(row: TargetRow) -> Response:
    return answer(documents.target_document(row), headers={"ETag": f'"{row.version}"'})


# --- change ------------------------------------------------------------------------------
@routes.add(
    "PATCH",
    "/v1/targets/{target_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The target as it is now.", shapes.Target)},
    problems=(404, 409, 412),
    patch=TargetPatch,
    etag=True,
)
async def edit_target(call: Call, target_id: TargetId) -> Response:
    """Edit a target with a JSON merge patch. Another `base_url` or `auth` makes it PENDING again,
    because it was another place that was approved."""
    patch = call.fields()
    disable = _disable(patch)
    row = await found_target(call, target_id)
    given = read_model(_merged(row, patch), TargetCreate)
    if given.base_url != row.base_url:
        _check_egress(call, given.base_url)
    state = row.state
    if given.base_url != row.base_url or "auth" in patch:
        state = "PENDING"
    if disable is not None:
        state = "DISABLED" if disable else "PENDING" if state == "DISABLED" else state
    after = replace(
        row,
        state=state,
        base_url=given.base_url,
        owner_team=given.owner_team,
        description=given.description,
        max_concurrency=given.max_concurrency,
        initial_concurrency=given.initial_concurrency or given.max_concurrency,
        latency_slo_ms=given.latency_slo_ms,
        auth=_shown_auth(given.auth) if "auth" in patch else row.auth,
        settings=_with_drill(row.settings, given),
        approved_by=row.approved_by if state == "APPROVED" else None,
        approved_at=row.approved_at if state == "APPROVED" else None,
    )
    credentials: list[SealedSecret] | None = None
    if "auth" in patch:
        credential = _credential(given.auth)
        now = call.services.now()
        credentials = [] if credential is None else [_sealed(call, target_id, CREDENTIAL, credential, now)]
    return _shown(await _update(call, row, after, credentials))


def _disable(patch: Fields) -> bool | None:
    raw = patch.pop("disabled", None)
    if raw is None:
        return None
    value = msgspec.json.decode(raw)
    if not isinstance(value, bool):
        raise invalid([body_fault("/disabled", "is true or false")])
    return value


def _merged(row: TargetRow, patch: Fields) -> Fields:
    """The body that would register the target as the patch wants it."""
    if "target_id" in patch:
        raise invalid([body_fault("/target_id", "cannot be changed")])
    base: dict[str, Any] = {
        "base_url": row.base_url,
        "owner_team": row.owner_team,
        "description": row.description,
        "max_concurrency": row.max_concurrency,
        "initial_concurrency": row.initial_concurrency,
        "latency_slo_ms": row.latency_slo_ms,
        "drill": row.settings.get("drill"),
    }
    if "max_concurrency" in patch and row.initial_concurrency == row.max_concurrency:
        base["initial_concurrency"] = None  # it was the maximum, and stays it
    merged: Fields = {
        name: msgspec.Raw(msgspec.json.encode(value)) for name, value in base.items() if value is not None
    }
    for name, raw in patch.items():
        if bytes(raw).strip() == b"null":
            merged.pop(name, None)
        else:
            merged[name] = raw  # auth as a whole: half of a credential helps nobody
    return merged


async def _update(
    call: Call, row: TargetRow, after: TargetRow, credentials: list[SealedSecret] | None = None
) -> TargetRow:
    pinned = check_version(call, row.version)
    services = call.services
    try:
        stored = await services.store.update_target(
            call.fence,
            after,
            base_version=row.version,
            host_id=services.host.host_id,
            actor=call.caller.actor,
            credentials=credentials,
        )
    except Conflict as lost:
        current = await found_target(call, row.target_id)
        if pinned:
            check_version(call, current.version)
        raise conflict("The target was changed in the meantime; read it again.") from lost
    services.targets.forget(call.tenant_id)
    return stored


@routes.add(
    "POST",
    "/v1/targets/{target_id:name}:approve",
    Rule(scope=Scope.TARGETS_APPROVE, writes=True, body_optional=True),
    answers={200: ("The target is approved.", shapes.Target)},
    problems=(404, 409, 412),
    etag=True,
)
async def approve_target(call: Call, target_id: TargetId) -> Response:
    """Approve a target: jobs may use it from now on. Approving it again changes nothing. With an
    `If-Match` only the version that was seen is approved."""
    row = await found_target(call, target_id)
    check_version(call, row.version)
    if row.state == "APPROVED":
        return _shown(row)
    _check_egress(call, row.base_url)
    now = call.services.now()
    after = replace(row, state="APPROVED", approved_by=call.caller.actor, approved_at=now)
    return _shown(await _update(call, row, after))


@routes.add(
    "POST",
    "/v1/targets/{target_id:name}:rotate-secret",
    Rule(scope=Scope.TARGETS_APPROVE, writes=True, body_optional=True),
    answers={200: ("The target with its new signing secret: shown this once.", shapes.TargetCreated)},
    problems=(404, 409, 412),
    etag=True,
)
async def rotate_secret(call: Call, target_id: TargetId, body: RotateIn) -> Response:
    """Make a new signing secret. Calls carry both signatures until the overlap ends."""
    row = await found_target(call, target_id)
    pinned = check_version(call, row.version)
    secret = call.services.entropy(SECRET_BYTES)
    stored = await _new_secret(
        call, row, SIGNING, secret, overlap_seconds=body.overlap_seconds, pinned=pinned
    )
    return answer(
        documents.target_document(stored) | {"secret": show_secret(secret)},
        headers={"ETag": f'"{stored.version}"'},
    )


async def _new_secret(
    call: Call, row: TargetRow, purpose: str, secret: bytes, *, overlap_seconds: int, pinned: bool = False
) -> TargetRow:
    services = call.services
    try:
        stored = await services.store.rotate_secret(
            call.fence,
            row.target_id,
            _sealed(call, row.target_id, purpose, secret, services.now()),
            overlap_seconds=overlap_seconds,
            host_id=services.host.host_id,
            actor=call.caller.actor,
            base_version=row.version if pinned else None,
        )
    except Conflict:
        check_version(call, (await found_target(call, row.target_id)).version)
        raise
    services.targets.forget(call.tenant_id)
    return stored


@routes.add(
    "DELETE",
    "/v1/targets/{target_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={204: ("The target is gone.", None)},
    problems=(404, 409, 412),
    etag=True,
)
async def delete_target(call: Call, target_id: TargetId) -> Response:
    """Delete a target that no waiting or paused job names."""
    row = await found_target(call, target_id)
    pinned = check_version(call, row.version)
    services = call.services
    try:
        await services.store.delete_target(
            call.fence,
            target_id,
            host_id=services.host.host_id,
            actor=call.caller.actor,
            base_version=row.version if pinned else None,
        )
    except Conflict as used:
        if pinned:
            check_version(call, (await found_target(call, target_id)).version)
        raise Problem(
            409, ErrorCode.CONFLICT, "Waiting or paused jobs call this target; cancel or move them first."
        ) from used
    services.targets.forget(call.tenant_id)
    return Response(status_code=204)
