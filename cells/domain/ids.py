"""Ids and stable hashes.

Ids are TypeIDs on the outside (`job_01h455vb4pex5vsknk084sn02q`: a prefix and 26 digits of
Crockford's base 32) and uuids inside. A uuid of ours is version 8 and names the store that
holds its rows, so that a request about it can be sent there without asking anyone.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import UTC, datetime, timedelta

import msgspec

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TO_BASE_32 = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_DIGITS = re.compile(f"[0-7][{_ALPHABET}]{{25}}")
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
#: What of an id is not free: the version, the store right behind it, the variant.
_FREE = (1 << 128) - 1 & ~(0xF << 76) & ~(0xFF << 68) & ~(0x3 << 62)
_SET = 8 << 76 | 2 << 62

TENANT = "tnt"
JOB = "job"
TARGET = "tgt"
WORKFLOW_RUN = "wr"
SELECTION = "sel"
OPERATION = "op"
BACKFILL = "bf"

#: The replicated store of a cell. Others are local stores of one site.
MAIN_STORE = 0


def encode(prefix: str, value: uuid.UUID) -> str:
    """The TypeID of a uuid."""
    n, two = value.int, _PAIRS
    # Written out: every answer is full of ids, and a loop over digits takes thrice as long.
    return (
        f"{prefix}_{two[n >> 120]}{two[n >> 110 & 1023]}{two[n >> 100 & 1023]}{two[n >> 90 & 1023]}"
        f"{two[n >> 80 & 1023]}{two[n >> 70 & 1023]}{two[n >> 60 & 1023]}{two[n >> 50 & 1023]}"
        f"{two[n >> 40 & 1023]}{two[n >> 30 & 1023]}{two[n >> 20 & 1023]}{two[n >> 10 & 1023]}{two[n & 1023]}"
    )


def decode(prefix: str, text: str) -> uuid.UUID | None:
    """The uuid behind a TypeID, or None if the text is no TypeID with that prefix."""
    head, _, digits = text.rpartition("_")
    if head != prefix or _DIGITS.fullmatch(digits) is None:
        return None
    return _value(digits)


def _value(digits: str) -> uuid.UUID:
    """Of 26 digits of the alphabet: read as Python's own base 32, whose digits follow each other."""
    return uuid.UUID(int=int(digits.translate(_TO_BASE_32), 32))


def _uuid8(raw: bytes, store: int) -> uuid.UUID:
    return uuid.UUID(int=int.from_bytes(raw[:16], "big") & _FREE | _SET | (store & 0xFF) << 68)


def fresh_id(*, now_ms: int, entropy: bytes, store: int = MAIN_STORE) -> uuid.UUID:
    """A new id that sorts by time. `entropy` is at least 10 random bytes."""
    return _uuid8(now_ms.to_bytes(6, "big") + entropy[:10], store)


def derived_id(*, tenant_id: uuid.UUID, key: str, store: int = MAIN_STORE) -> uuid.UUID:
    """The id of what was created under an idempotency key: the same for every retry."""
    raw = hashlib.blake2b(
        tenant_id.bytes + store.to_bytes(1, "big") + key.encode(), digest_size=16, person=b"ch-id"
    ).digest()
    return _uuid8(raw, store)


def workflow_run_id(value: uuid.UUID) -> uuid.UUID:
    """The id of a workflow's execution: version 7, so that a run's parent tells what it is."""
    return uuid.UUID(int=value.int & ~(0xF << 76) | 7 << 76)


def is_workflow_run(value: uuid.UUID) -> bool:
    """Whether that is an execution of a workflow, and no job."""
    return value.int >> 76 & 0xF == 7


def store_of(value: uuid.UUID) -> int:
    """The number of the store that holds an id's rows."""
    return value.int >> 68 & 0xFF


def instant_of(ms: int) -> datetime:
    """The instant of epoch milliseconds, exactly."""
    return _EPOCH + timedelta(milliseconds=ms)


def shard_of(value: uuid.UUID) -> int:
    """The logical shard (0-255) of a job or workflow."""
    return hashlib.blake2b(value.bytes, digest_size=1, person=b"ch-shard").digest()[0]


def offset_of(value: uuid.UUID, window_ms: int) -> int:
    """How far behind its scheduled time a job is due, in milliseconds: in [0, window_ms)."""
    if window_ms <= 0:
        return 0
    raw = hashlib.blake2b(value.bytes, digest_size=8, person=b"ch-window").digest()
    return int.from_bytes(raw, "big") % window_ms


class RunKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Names one run of one tenant: whose, for which instant, the how-manieth by hand."""

    parent_id: uuid.UUID  # the job (or workflow) it belongs to
    scheduled_for: datetime  # whole seconds, UTC
    ordinal: int = 0  # 0: the occurrence itself; above: triggers; below: callbacks

    def __str__(self) -> str:
        return run_id(self)


def run_id(key: RunKey) -> str:
    """`job_...:2026-09-28T00:00:00Z`, with `:<ordinal>` for a run started by hand (above 0) and for a
    callback (below 0); `wr_...:...` of a workflow's activity.

    A job's is also the idempotency key that the target sees.
    """
    prefix = WORKFLOW_RUN if is_workflow_run(key.parent_id) else JOB
    text = f"{encode(prefix, key.parent_id)}:{key.scheduled_for.isoformat()[:19]}Z"
    return f"{text}:{key.ordinal}" if key.ordinal else text


_RUN_ID = re.compile(
    f"({JOB}|{WORKFLOW_RUN})_([0-7][{_ALPHABET}]{{25}})"
    r":([1-9]\d{3})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z(?::(-?[1-9]\d{0,9}))?",
    re.ASCII,
)


def parse_run_id(text: str) -> RunKey | None:
    """The key a run id names, or None if it is none. Only what `run_id` writes is one."""
    found = _RUN_ID.fullmatch(text)
    if found is None:
        return None
    prefix, digits, year, month, day, hour, minute, second, tail = found.groups()
    parent = _value(digits)
    if is_workflow_run(parent) is not (prefix == WORKFLOW_RUN):
        return None
    ordinal = int(tail) if tail else 0
    if not -(2**31) <= ordinal < 2**31:
        return None
    try:
        at = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return None
    return RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal)
