"""Binary arrays: what psycopg's own loader reads back is what went in."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cells.store import arrays

instants = st.datetimes(timezones=st.just(UTC))


def unpacked(array: bytes) -> list[bytes | None]:
    """Elements of a one-dimensional binary array."""
    dimensions, _, _ = struct.unpack_from(">iiI", array)
    if dimensions == 0:
        assert len(array) == 12
        return []
    (n, lower) = struct.unpack_from(">ii", array, 12)
    assert (dimensions, lower) == (1, 1)
    at, found = 20, []
    for _ in range(n):
        (size,) = struct.unpack_from(">i", array, at)
        at += 4
        found.append(None if size < 0 else array[at : at + size])
        at += max(size, 0)
    assert at == len(array)
    return found


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_numbers(values: list[int | None]) -> None:
    expected = [None if v is None else struct.pack(">q", v) for v in values]
    assert unpacked(arrays.int8s(values)) == expected
    assert unpacked(arrays.instants(values)) == expected


@given(st.lists(st.none() | st.integers(-(2**15), 2**15 - 1)))
def test_small_numbers(values: list[int | None]) -> None:
    assert unpacked(arrays.int2s(values)) == [None if v is None else struct.pack(">h", v) for v in values]
    assert unpacked(arrays.int4s(values)) == [None if v is None else struct.pack(">i", v) for v in values]


@given(st.lists(st.none() | st.text()))
def test_texts(values: list[str | None]) -> None:
    expected = [None if v is None else v.encode() for v in values]
    assert unpacked(arrays.texts(values)) == unpacked(arrays.labels(values)) == expected
    assert unpacked(arrays.blobs(expected)) == expected


@given(st.lists(st.uuids()))
def test_uuids(values: list[uuid.UUID]) -> None:
    assert unpacked(arrays.uuids(values)) == [v.bytes for v in values]


@given(st.lists(st.binary()))
def test_documents_carry_their_format_version(values: list[bytes]) -> None:
    assert unpacked(arrays.jsons(values)) == [b"\x01" + v for v in values]


@given(instants)
def test_instants_keep_their_microseconds(at: datetime) -> None:
    micros = arrays.from_datetime(at)
    assert datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros) == at
    ms = arrays.datetime_to_ms(at)
    assert (
        timedelta(0)
        <= at - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=ms)
        < timedelta(milliseconds=1)
    )
    due = arrays.due_to_ms(at)
    assert due - ms == (0 if micros % 1000 == 0 else 1)
    assert arrays.to_ms(arrays.from_ms(ms)) == ms


def test_none_stays_null() -> None:
    assert arrays.from_datetime_or_none(None) is None
