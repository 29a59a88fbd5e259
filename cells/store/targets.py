"""Targets and their sealed secrets."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
from psycopg import errors

from cells.ports import Conflict, Fence, SealedSecret, TargetRow, Terminal
from cells.store.arrays import texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run

#: In the order in which every statement here returns them.
_COLUMNS = (
    *("tenant_id", "target_id", "state", "version", "base_url", "owner_team", "description"),
    *("max_concurrency", "initial_concurrency", "latency_slo_ms", "auth", "settings"),
    *("created_by", "created_at", "updated_at", "approved_by", "approved_at"),
)


class Targets(StoreBase):
    """What jobs may call."""

    async def create_target(
        self, fence: Fence, target: TargetRow, secrets: Sequence[SealedSecret], *, host_id: int
    ) -> TargetRow:
        """Write a new target with its secrets; `Conflict` if its id is taken."""
        try:
            async with self._write(fence, host_id) as (connection, entry):
                row = await fetch_row(connection, "target_create", _columns(fence, target))
                for secret in secrets:
                    await run(connection, "secret_put", _secret_columns(fence, target.target_id, secret))
                entry.intent(fence.tenant_id, "target.create", target.target_id, 0, 1)
                told = {"state": target.state, "base_url": target.base_url}
                entry.event(fence.tenant_id, "target.created", target.target_id, target.created_by, **told)
                return _target(row)
        except errors.UniqueViolation as e:
            raise Conflict(f"target {target.target_id} exists already") from e

    async def get_target(self, tenant_id: uuid.UUID, target_id: str) -> TargetRow | None:
        """One target, or None if the tenant has none of that id."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "target_get", {"tenant": tenant_id, "target": target_id})
            return None if row is None else _target(row)

    async def list_targets(
        self, tenant_id: uuid.UUID, *, state: str | None, after: str | None, limit: int
    ) -> Sequence[TargetRow]:
        """A page by id."""
        parameters = {"tenant": tenant_id, "state": state, "after": after, "limit": limit}
        async with self._database.transaction() as connection:
            return [_target(row) for row in await fetch_all(connection, "target_list", parameters)]

    async def update_target(
        self,
        fence: Fence,
        target: TargetRow,
        *,
        base_version: int,
        host_id: int,
        actor: str | None = None,
        credentials: Sequence[SealedSecret] | None = None,
    ) -> TargetRow:
        """See `ports.Store.update_target`. `Terminal` if there is no such target."""
        async with self._write(fence, host_id) as (connection, entry):
            version, before = await _locked(connection, fence, target.target_id)
            columns = {**_columns(fence, target), "base": base_version}
            row = await fetch_one(connection, "target_update", columns)
            if row is None:
                raise Conflict("the target has changed since it was read", version=version)
            if credentials is not None:
                await _replace_credentials(connection, fence, target.target_id, credentials)
            entry.intent(fence.tenant_id, "target.update", target.target_id, base_version, base_version + 1)
            told = "target.edited" if target.state == before else f"target.{target.state.lower()}"
            entry.event(fence.tenant_id, told, target.target_id, actor, version=base_version + 1)
            return _target(row)

    async def delete_target(
        self,
        fence: Fence,
        target_id: str,
        *,
        host_id: int,
        actor: str | None = None,
        base_version: int | None = None,
    ) -> None:
        """See `ports.Store.delete_target`. `Terminal` if there is no such target."""
        ids = {"tenant": fence.tenant_id, "target": target_id}
        async with self._write(fence, host_id) as (connection, entry):
            version, _ = await _locked(connection, fence, target_id, base_version)
            used = await fetch_one(connection, "target_users", ids)
            if used is not None and used[0]:
                raise Conflict("jobs still name this target", version=version)
            await run(connection, "target_delete", ids)
            entry.intent(fence.tenant_id, "target.delete", target_id, version, 0)
            entry.event(fence.tenant_id, "target.deleted", target_id, actor)

    async def rotate_secret(
        self,
        fence: Fence,
        target_id: str,
        secret: SealedSecret,
        *,
        overlap_seconds: int,
        host_id: int,
        actor: str | None = None,
        base_version: int | None = None,
    ) -> TargetRow:
        """See `ports.Store.rotate_secret`. The generation's number is given here; that of
        `secret` is ignored."""
        ids = {"tenant": fence.tenant_id, "target": target_id, "purpose": secret.purpose}
        async with self._write(fence, host_id) as (connection, entry):
            version, _ = await _locked(connection, fence, target_id, base_version)
            (generation,) = await fetch_row(connection, "secret_next", ids)
            await run(connection, "secret_expire", {**ids, "overlap": overlap_seconds})
            columns = _secret_columns(fence, target_id, secret)
            await run(connection, "secret_put", {**columns, "generation": generation})
            row = await fetch_row(connection, "target_touch", ids)
            entry.intent(fence.tenant_id, "target.rotate", target_id, version, version + 1)
            told = {"purpose": secret.purpose, "overlap_seconds": overlap_seconds}
            entry.event(fence.tenant_id, "target.secret_rotated", target_id, actor, **told)
            return _target(row)

    async def target_secrets(self, tenant_id: uuid.UUID, target_id: str) -> Sequence[SealedSecret]:
        """Live generations, newest first."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "secret_list", {"tenant": tenant_id, "target": target_id})
            return [_secret(row) for row in rows]

    async def call_targets(
        self, wanted: Sequence[tuple[uuid.UUID, str]]
    ) -> Sequence[tuple[TargetRow, Sequence[SealedSecret]]]:
        """See `ports.Store.call_targets`."""
        tenants, names = [tenant for tenant, _ in wanted], [name for _, name in wanted]
        parameters = {"tenants": uuids(tenants), "targets": texts(names)}
        async with self._database.transaction() as connection:
            async with connection.pipeline():
                targets = await run(connection, "call_targets", parameters)
                sealed = await run(connection, "call_secrets", parameters)
            secrets: dict[int, list[SealedSecret]] = {}
            for row in await sealed.fetchall():
                secrets.setdefault(row[0], []).append(_secret(row[1:]))
            return [(_target(row[1:]), secrets.get(row[0], [])) for row in await targets.fetchall()]

    async def find_target_by_url(self, tenant_id: uuid.UUID, url: str) -> TargetRow | None:
        """See `ports.Store.find_target_by_url`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "target_by_url", {"tenant": tenant_id, "url": url})
            return None if row is None else _target(row)


async def _replace_credentials(
    connection: Connection, fence: Fence, target_id: str, credentials: Sequence[SealedSecret]
) -> None:
    """What the target was called with ends at once; none of it outlives its kind of auth."""
    ids = {"tenant": fence.tenant_id, "target": target_id, "purpose": "CREDENTIAL"}
    (generation,) = await fetch_row(connection, "secret_next", ids)
    await run(connection, "secret_expire", {**ids, "overlap": 0})
    for number, secret in enumerate(credentials, generation):
        columns = _secret_columns(fence, target_id, secret)
        await run(connection, "secret_put", {**columns, "generation": number})


async def _locked(
    connection: Connection, fence: Fence, target_id: str, base_version: int | None = None
) -> tuple[int, str]:
    """Version and state of a target that is about to be changed; `Conflict` if the version is not the
    one it should have."""
    row = await fetch_one(connection, "target_lock", {"tenant": fence.tenant_id, "target": target_id})
    if row is None:
        raise Terminal("no such target")
    if base_version is not None and row[0] != base_version:
        raise Conflict("the target has changed since it was read", version=row[0])
    return row[0], row[1]


def _columns(fence: Fence, target: TargetRow) -> dict[str, object]:
    return {
        "tenant": fence.tenant_id,
        "target": target.target_id,
        "state": target.state,
        "base_url": target.base_url,
        "owner_team": target.owner_team,
        "description": target.description,
        "max_concurrency": target.max_concurrency,
        "initial_concurrency": target.initial_concurrency,
        "latency_slo_ms": target.latency_slo_ms,
        "auth": msgspec.json.encode(target.auth).decode(),
        "settings": msgspec.json.encode(target.settings).decode(),
        "created_by": target.created_by,
        "approved_by": target.approved_by,
        "approved_at": target.approved_at,
    }


def _secret_columns(fence: Fence, target_id: str, secret: SealedSecret) -> dict[str, object]:
    return {
        "tenant": fence.tenant_id,
        "target": target_id,
        "generation": secret.generation,
        "purpose": secret.purpose,
        "sealed": secret.sealed,
        "expires_at": secret.expires_at,
    }


def _target(row: Row) -> TargetRow:
    columns = dict(zip(_COLUMNS, row, strict=True))
    for name in ("auth", "settings"):
        columns[name] = msgspec.json.decode(columns[name])
    return TargetRow(**columns)


def _secret(row: Row) -> SealedSecret:
    generation, purpose, sealed, created_at, expires_at = row
    return SealedSecret(
        generation=generation, purpose=purpose, sealed=sealed, created_at=created_at, expires_at=expires_at
    )
