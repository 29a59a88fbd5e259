"""What a target can take, as people read it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cells.api.documents import Document, instant
from cells.domain.breaker import BreakerState
from cells.limits import DrillRow, TargetBoard
from cells.ports import Member, Queue, Retryable, TargetRow

#: Minutes of history.
HISTORY = 60


async def board_of(queue: Queue, tenant_id: uuid.UUID, target_id: str) -> TargetBoard | None:
    """What executors share of the target; None also while that is away, because nothing depends on it."""
    try:
        return await queue.target_board((tenant_id, target_id))
    except Retryable:
        return None


def limit_document(
    board: TargetBoard, row: TargetRow, minutes: Sequence[Mapping[str, Any]], now: datetime
) -> Document:
    """The limit now, and minute by minute with answer times (`target_stats`)."""
    reason, until_ms = why(board, round(now.timestamp() * 1000))
    return {
        "allowed": min(int(board.limit), row.max_concurrency),
        "usable": min(board.usable, row.max_concurrency),
        "breaker": board.breaker,
        "reason": reason,
        "until": _instant_ms(until_ms),
        "quota_remaining": board.remaining,
        "executors": board.executors,
        "parked": sum(board.parked),
        "history": _history(board, minutes),
    }


def why(board: TargetBoard, now_ms: int) -> tuple[str | None, int | None]:
    """Why work for the target waits, and until when (epoch ms) where that is known."""
    if board.breaker is BreakerState.OPEN:
        return "At least half of its calls failed: it is not called until it is probed.", board.until_ms
    if board.paused_until_ms > now_ms:
        return "It asked for a pause (Retry-After).", board.paused_until_ms
    if board.breaker is BreakerState.HALF_OPEN:
        return "It failed, and is tried with one call at a time.", None
    if board.remaining == 0:
        return "It said that nothing is left of its quota (RateLimit).", board.renews_ms
    if board.remaining is not None and board.remaining < int(board.limit):
        return "It said that little is left of its quota (RateLimit).", board.renews_ms
    return ("It has as many calls as it can take." if any(board.parked) else None), None


def drill_document(row: DrillRow) -> Document:
    """What came of duplicates."""
    return {
        "sent": row.sent,
        "coped": row.coped,
        "last_sent_at": instant(row.at),
        "failed_run_id": row.failed_run,
        "failed_at": instant(row.failed_at),
        "failed_status": row.failed_status,
        "failed_error": row.failed_error,
    }


async def parked_documents(queue: Queue, members: Sequence[Member], now: datetime) -> list[Document | None]:
    """Why the target of each keeps it waiting, if it is parked; None also while that cannot be told."""
    shown: dict[tuple[uuid.UUID, str], Document] = {}
    try:
        parked = await queue.parked_for(members) if members else ()
        keys = [
            (m.tenant_id, target) if target is not None else None
            for m, target in zip(members, parked, strict=True)
        ]
        for key in {key for key in keys if key is not None}:
            shown[key] = _parked(key[1], await queue.target_board(key), now)
    except Retryable:
        return [None] * len(members)
    return [shown[key] if key is not None else None for key in keys]


def _parked(target_id: str, board: TargetBoard | None, now: datetime) -> Document:
    reason, until_ms = (None, None) if board is None else why(board, round(now.timestamp() * 1000))
    return {
        "because": "target",
        "target_id": target_id,
        "reason": reason or "It has as many calls as it can take.",
        "until": _instant_ms(until_ms),
    }


def _history(board: TargetBoard, minutes: Sequence[Mapping[str, Any]]) -> list[Document]:
    limits = {m.minute: m for m in board.minutes}
    calls = {int(m["minute"].timestamp()) // 60: m for m in minutes}
    out: list[Document] = []
    for minute in sorted(limits.keys() | calls.keys())[-HISTORY:]:
        limit, called = limits.get(minute), calls.get(minute)
        n = called["succeeded"] + called["failed"] + called["retried"] if called else 0
        out.append(
            {
                "minute": _instant_ms(minute * 60_000),
                "limit_lowest": None if limit is None else limit.lowest,
                "limit": None if limit is None else limit.latest,
                "parked": 0 if limit is None else limit.parked,
                "breaker": BreakerState.CLOSED if limit is None else limit.breaker,
                "calls": n,
                "call_mean_ms": round(called["ms_sum"] / n, 1) if called and n else None,
                "call_max_ms": called["ms_max"] if called else None,
            }
        )
    return out


def _instant_ms(ms: int | None) -> str | None:
    return None if ms is None else instant(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
