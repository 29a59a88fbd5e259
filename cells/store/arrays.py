"""One-dimensional arrays in PostgreSQL's binary format.

Batches travel as one array per column and are unnested by the server. Packing them here costs a
fraction of adapting element by element, which matters on the way of every run.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

import psycopg
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEADER = struct.Struct(">iiIii")  # dimensions, has nulls, element type, length, lower bound
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_EMPTY = struct.Struct(">iiI")

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_MS = 946_684_800_000


class _Packed(bytes):
    """An array ready to be sent."""

    array_oid = 0


class Int8s(_Packed):
    array_oid = 1016


class Int4s(_Packed):
    array_oid = 1007


class Int2s(_Packed):
    array_oid = 1005


class Bools(_Packed):
    array_oid = 1000


class Uuids(_Packed):
    array_oid = 2951


class Instants(_Packed):
    array_oid = 1185


class Texts(_Packed):
    array_oid = 1009


class Blobs(_Packed):
    array_oid = 1001


class Jsons(_Packed):
    array_oid = 3807


_INT8, _INT4, _INT2, _UUID, _TIMESTAMPTZ, _TEXT, _BYTEA, _JSONB = 20, 23, 21, 2950, 1184, 25, 17, 3802
_BOOL = 16


@lru_cache(maxsize=2048)
def _interleaved(code: str, n: int) -> struct.Struct:
    return struct.Struct(">" + ("i" + code) * n)


def _numbers(values: Sequence[int | None], code: str, size: int, oid: int) -> bytes:
    n = len(values)
    if n == 0:
        return _EMPTY.pack(0, 0, oid)
    if None in values:
        one = struct.Struct(">" + code)
        return _joined([_NULL if v is None else _chunk(one.pack(v)) for v in values], oid)
    flat: list[int | None] = [size] * (2 * n)
    flat[1::2] = values
    return _HEADER.pack(1, 0, oid, n, 1) + _interleaved(code, n).pack(*flat)


def _chunk(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH.pack(len(value)) + value


def _chunks(values: Sequence[bytes | None]) -> list[bytes]:
    """`_chunk` of many, without a call for each."""
    pack = _LENGTH.pack
    return [_NULL if v is None else pack(len(v)) + v for v in values]


@lru_cache(maxsize=4096)
def _label(value: str | None) -> bytes:
    return _NULL if value is None else _chunk(value.encode())


def _joined(chunks: Sequence[bytes], oid: int) -> bytes:
    n = len(chunks)
    if n == 0:
        return _EMPTY.pack(0, 0, oid)
    return _HEADER.pack(1, 1, oid, n, 1) + b"".join(chunks)


def int8s(values: Sequence[int | None]) -> Int8s:
    """bigint[]"""
    return Int8s(_numbers(values, "q", 8, _INT8))


def int4s(values: Sequence[int | None]) -> Int4s:
    """integer[]"""
    return Int4s(_numbers(values, "i", 4, _INT4))


def int2s(values: Sequence[int | None]) -> Int2s:
    """smallint[]"""
    return Int2s(_numbers(values, "h", 2, _INT2))


def bools(values: Sequence[bool]) -> Bools:
    """boolean[]"""
    return Bools(_numbers(values, "?", 1, _BOOL))


def uuids(values: Sequence[uuid.UUID]) -> Uuids:
    """uuid[]; no nulls."""
    n = len(values)
    if n == 0:
        return Uuids(_EMPTY.pack(0, 0, _UUID))
    return Uuids(
        b"\x00\x00\x00\x10".join([_HEADER.pack(1, 0, _UUID, n, 1), *[v.int.to_bytes(16) for v in values]])
    )


def instants(micros: Sequence[int | None]) -> Instants:
    """timestamptz[] of microseconds as `from_datetime` and `from_ms` give them."""
    return Instants(_numbers(micros, "q", 8, _TIMESTAMPTZ))


def texts(values: Sequence[str | None]) -> Texts:
    """text[]"""
    return Texts(_joined(_chunks([None if v is None else v.encode() for v in values]), _TEXT))


def labels(values: Sequence[str | None]) -> Texts:
    """text[] of few different values: states, targets, reasons."""
    return Texts(_joined(list(map(_label, values)), _TEXT))


def blobs(values: Sequence[bytes | None]) -> Blobs:
    """bytea[]"""
    return Blobs(_joined(_chunks(values), _BYTEA))


def jsons(values: Sequence[bytes]) -> Jsons:
    """jsonb[] of encoded documents"""
    return Jsons(_joined([_LENGTH.pack(len(v) + 1) + b"\x01" + v for v in values], _JSONB))


def from_datetime(at: datetime) -> int:
    """PostgreSQL's own count: microseconds since 2000."""
    d = at - _EPOCH
    return (d.days * 86400 + d.seconds) * 1_000_000 + d.microseconds


def from_datetime_or_none(at: datetime | None) -> int | None:
    """As `from_datetime`; None stays null."""
    return None if at is None else from_datetime(at)


def from_ms(ms: int) -> int:
    """From milliseconds since 1970."""
    return (ms - _EPOCH_MS) * 1000


def to_ms(micros: int) -> int:
    """To milliseconds since 1970, rounded down."""
    return micros // 1000 + _EPOCH_MS


def datetime_to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return to_ms(from_datetime(at))


def due_to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded up: a timer must not end before its instant."""
    return -(-from_datetime(at) // 1000) + _EPOCH_MS


def _dumper(kind: type[_Packed]) -> type[Dumper]:
    class PackedDumper(Dumper):
        format = Format.BINARY
        oid = kind.array_oid

        def dump(self, obj: bytes) -> bytes:
            return obj

    return PackedDumper


def register(adapters: AdaptersMap) -> None:
    """Teach a connection these types."""
    for kind in (Int8s, Int4s, Int2s, Bools, Uuids, Instants, Texts, Blobs, Jsons):
        adapters.register_dumper(kind, _dumper(kind))


register(psycopg.adapters)
