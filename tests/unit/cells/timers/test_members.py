"""Members as bytes."""

from __future__ import annotations

import struct
import uuid

from hypothesis import given
from hypothesis import strategies as st

from cells.ports import Member
from cells.timers.members import PACKED_SIZE, by_bucket, pack, unpack, unpack_popped

MEMBERS = st.builds(
    Member,
    tenant_id=st.uuids(),
    parent_id=st.uuids(),
    scheduled_for=st.integers(-(2**40), 2**40),
    ordinal=st.integers(-(2**31), 2**31 - 1),
    is_run=st.booleans(),
    generation=st.integers(0, 2**32 - 1),
    priority=st.integers(0, 3),
    due_ms=st.integers(0, 2**50),
    shard=st.integers(0, 255),
    released_ms=st.integers(0, 2**50),
)


@given(MEMBERS)
def test_packing_loses_nothing(member: Member) -> None:
    packed = pack(member)
    assert len(packed) == PACKED_SIZE == 50
    assert unpack(packed, due_ms=member.due_ms, released_ms=member.released_ms) == member


@given(MEMBERS)
def test_ids_are_real_uuids(member: Member) -> None:
    tenant = unpack(pack(member), due_ms=0).tenant_id
    assert (hash(tenant), str(tenant), tenant.is_safe) == (
        hash(member.tenant_id),
        str(member.tenant_id),
        uuid.SafeUUID.unknown,
    )


@given(st.lists(MEMBERS, max_size=5))
def test_what_pop_answers(members: list[Member]) -> None:
    blob = b"".join(pack(m) + struct.pack(">dd", m.due_ms, m.released_ms) for m in members)
    assert unpack_popped(blob) == members


@given(MEMBERS, MEMBERS)
def test_equal_bytes_mean_the_same_timer(one: Member, other: Member) -> None:
    def timer(m: Member) -> tuple[object, ...]:
        return (
            m.tenant_id,
            m.parent_id,
            m.scheduled_for,
            m.ordinal,
            m.is_run,
            m.generation,
            m.priority,
            m.shard,
        )

    assert (pack(one) == pack(other)) == (timer(one) == timer(other))


@given(st.lists(MEMBERS, max_size=30))
def test_grouping_by_bucket_keeps_every_member(members: list[Member]) -> None:
    found = [
        (priority, minute, shard, due, packed)
        for (priority, minute), shards in by_bucket(members).items()
        for shard, flat in shards.items()
        for due, packed in zip(flat[::2], flat[1::2], strict=True)
    ]
    wanted = [(m.priority, m.due_ms // 60_000, m.shard, m.due_ms, pack(m)) for m in members]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
