"""The API's requests about dead letters tried again or done with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.documents import DeadLetter, Run
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterSelection(Document):
    """Dead letters that were chosen; nothing has happened to them."""

    selection_id: str
    action: str
    count: int
    hash: str
    sample: Sequence[DeadLetter] = ()
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Redrive(Document):
    """Dead letters being redriven or purged. `stage` is `first`, `ten` or `rest` while it runs;
    `runs` says how the redriven runs stand, by state."""

    redrive_id: str
    action: str
    state: str
    stage: str | None
    total: int
    processed: int
    done: int
    unchanged: int
    failed: int
    max_per_second: int
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None
    stop_reason: str | None
    runs: Mapping[str, int] | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state != "RUNNING"


def choose_letters(
    action: str,
    *,
    target: str | None = None,
    fingerprint: str | None = None,
    job_id: str | None = None,
    reason: str | None = None,
    failed_after: datetime | str | None = None,
    failed_before: datetime | str | None = None,
    run_ids: Sequence[str] | None = None,
) -> Call[LetterSelection]:
    """Freeze the dead letters that fit (all, if nothing is said) for `redrive` or `purge`: how many, and
    the hash that names exactly them."""
    asked: dict[str, Any] = {
        "target_id": target,
        "fingerprint": fingerprint,
        "job_id": job_id,
        "reason": reason,
        "failed_after": _text(failed_after),
        "failed_before": _text(failed_before),
        "run_ids": list(run_ids) if run_ids is not None else None,
    }
    chosen = {name: value for name, value in asked.items() if value is not None}
    return Call(
        method="POST",
        path=f"/v1/dlq:{action}",
        read=reads(LetterSelection),
        body={"filter": chosen, "dry_run": True},
    )


def begin(selection: LetterSelection, *, max_per_second: int = 50) -> Call[Redrive]:
    """Redrive or purge exactly the letters of a selection. Sent again it answers the same one."""
    return Call(
        method="POST",
        path=f"/v1/dlq:{selection.action}",
        read=reads(Redrive),
        body={
            "selection_id": selection.selection_id,
            "hash": selection.hash,
            "max_per_second": max_per_second,
        },
        repeatable=True,
    )


def redrive_run(run_id: str) -> Call[Run]:
    """Try one dead letter again, now."""
    return Call(method="POST", path=path("/v1/dlq/{run_id}", run_id=run_id) + ":redrive", read=reads(Run))


def list_redrives(
    *,
    state: str | None = None,
    action: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Redrive]]:
    """Redrives and purges, the newest first."""
    return Call(
        method="GET",
        path="/v1/redrives",
        read=reads_page(Redrive),
        query=query(state=state, action=action, limit=limit, cursor=cursor),
    )


def get_redrive(redrive_id: str) -> Call[Redrive]:
    """How far a redrive or purge is, and how its runs do."""
    return Call(
        method="GET", path=path("/v1/redrives/{redrive_id}", redrive_id=redrive_id), read=reads(Redrive)
    )


def stop_redrive(redrive_id: str) -> Call[Redrive]:
    """Stop it: what is done stays done, the other letters stay where they are."""
    return Call(
        method="POST",
        path=path("/v1/redrives/{redrive_id}", redrive_id=redrive_id) + ":stop",
        read=reads(Redrive),
        repeatable=True,
    )


def _text(at: datetime | str | None) -> str | None:
    return at.isoformat() if isinstance(at, datetime) else at
