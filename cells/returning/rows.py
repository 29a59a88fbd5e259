"""Rows of another region's database, as they were handed in (JSON), in the forms that the store takes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cells.ports import Fence, NotOwner, SealedSecret, TargetRow
from cells.returns import Outcome, ReturnedIntent

#: An intent's judgement, and why.
Judged = tuple[Outcome, str | None]


def fence_of(intent: ReturnedIntent) -> Fence:
    """The ownership that it is carried out under."""
    return Fence(tenant_id=intent.tenant_id, epoch=intent.tenant_epoch)


def along_with(before: tuple[str, Outcome | None, str | None] | None) -> Judged:
    """A signal that came along with the start of its workflow, or with the first signal to it, fares no
    better than that: its verb, outcome (None: not judged yet) and note."""
    if before is None:
        return Outcome.NOT_APPLIED, "nothing tells what it said"
    verb, outcome, note = before
    if outcome is None:
        raise NotOwner("what it came with waits, too")
    if verb == "workflow.signal":
        return outcome, note or "with the first one of its workflow"
    if outcome in (Outcome.APPLIED, Outcome.IMPORTED):
        return Outcome.IMPORTED, None
    lost = Outcome.NOT_APPLIED if outcome is Outcome.ALREADY else outcome
    return lost, f"its workflow did not come along: {note or outcome}"


def as_uuid(text: str) -> uuid.UUID:
    """An id."""
    return uuid.UUID(text)


def as_bytes(text: str) -> bytes:
    r"""A bytea, which PostgreSQL writes as `\x…`."""
    return bytes.fromhex(text.removeprefix("\\x"))


def as_instant(text: str | None) -> datetime | None:
    """A timestamptz."""
    return None if text is None else datetime.fromisoformat(text)


def as_target(row: Mapping[str, Any]) -> TargetRow:
    """A row of `targets`."""
    instants = ("created_at", "updated_at", "approved_at")
    columns = {name: value for name, value in row.items() if name in TargetRow.__dataclass_fields__}
    columns |= {name: as_instant(row[name]) for name in instants}
    return TargetRow(**{**columns, "tenant_id": as_uuid(row["tenant_id"])})


def as_secret(row: Mapping[str, Any]) -> SealedSecret:
    """A row of `target_secrets`."""
    return SealedSecret(
        generation=row["generation"],
        purpose=row["purpose"],
        sealed=as_bytes(row["sealed"]),
        created_at=datetime.fromisoformat(row["created_at"]),
        expires_at=as_instant(row["expires_at"]),
    )
