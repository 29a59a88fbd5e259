"""Members as bytes: what lies in buckets, held sets and queues.

A packed member is 50 bytes (short enough for Valkey's compact encoding of small sorted sets)
and begins with the tenant, which the Lua scripts read. Its due time is not part of it: that is
the score. Packing and unpacking are on the path of every run, hence the shortcuts below.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable

from cells.ports import Member

#: tenant, parent, scheduled_for, ordinal, generation, class and kind, shard
_PACKED = struct.Struct(">16s16sqiIBB")
#: what `pop.lua` answers per member: the packed member, due and released (epoch ms)
_POPPED = struct.Struct(">16s16sqiIBBdd")
PACKED_SIZE = _PACKED.size
_RUN = 0x10  # set in the class byte when the member is a run's timer, not a job's

_new_uuid = uuid.UUID.__new__
_set = object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown


def _uuid(raw: bytes) -> uuid.UUID:
    """A uuid from 16 bytes at a third of the constructor's price (which checks its input)."""
    value = _new_uuid(uuid.UUID)
    _set(value, "int", int.from_bytes(raw, "big"))
    _set(value, "is_safe", _UNKNOWN)
    return value


def pack(member: Member) -> bytes:
    """The member's bytes: equal exactly for the same timer."""
    return _PACKED.pack(
        member.tenant_id.bytes,
        member.parent_id.bytes,
        member.scheduled_for,
        member.ordinal,
        member.generation,
        member.priority | _RUN if member.is_run else member.priority,
        member.shard,
    )


def unpack(packed: bytes, *, due_ms: int, released_ms: int = 0) -> Member:
    """The member behind its bytes and its score."""
    tenant, parent, scheduled_for, ordinal, generation, kind, shard = _PACKED.unpack(packed)
    return Member(
        tenant_id=_uuid(tenant),
        parent_id=_uuid(parent),
        scheduled_for=scheduled_for,
        ordinal=ordinal,
        is_run=kind >= _RUN,
        generation=generation,
        priority=kind & 0xF,
        due_ms=due_ms,
        shard=shard,
        released_ms=released_ms,
    )


def unpack_popped(blob: bytes) -> list[Member]:
    """The members in an answer of `pop.lua`, in the order in which they were served."""
    tenants: dict[bytes, uuid.UUID] = {}
    members = []
    for tenant, parent, scheduled_for, ordinal, generation, kind, shard, due, released in _POPPED.iter_unpack(
        blob
    ):
        tenant_id = tenants.get(tenant)
        if tenant_id is None:
            tenant_id = tenants[tenant] = _uuid(tenant)
        members.append(
            Member(
                tenant_id=tenant_id,
                parent_id=_uuid(parent),
                scheduled_for=scheduled_for,
                ordinal=ordinal,
                is_run=kind >= _RUN,
                generation=generation,
                priority=kind & 0xF,
                due_ms=int(due),
                shard=shard,
                released_ms=int(released),
            )
        )
    return members


def by_bucket(members: Iterable[Member]) -> dict[tuple[int, int], dict[int, list[int | bytes]]]:
    """Members grouped as `add.lua` and `remove.lua` want them.

    (class, minute since the epoch) -> shard -> [due, packed, due, packed, ...]
    """
    groups: dict[tuple[int, int], dict[int, list[int | bytes]]] = {}
    for member in members:
        due = member.due_ms
        key = (member.priority, due // 60_000)
        shards = groups.get(key)
        if shards is None:
            shards = groups[key] = {}
        flat = shards.get(member.shard)
        if flat is None:
            flat = shards[member.shard] = []
        flat += (due, pack(member))
    return groups
