"""Ids of billing's things: sortable by time, shown as TypeIDs."""

from __future__ import annotations

import os
import time
import uuid

from cells.domain.ids import TENANT, decode, encode, fresh_id

BOOK = "pbk"
CONTRACT = "ctr"
INVOICE = "ivc"
CREDIT_NOTE = "crn"
EXPORT = "exp"
#: Who pays, as FOCUS has it: one for each tenant, with its uuid.
ACCOUNT = "acct"

__all__ = [
    "ACCOUNT", "BOOK", "CONTRACT", "CREDIT_NOTE", "EXPORT", "INVOICE", "TENANT", "decode", "encode", "new_id",
]  # fmt: skip


def new_id() -> uuid.UUID:
    """A new id; later ones sort behind earlier ones."""
    return fresh_id(now_ms=time.time_ns() // 1_000_000, entropy=os.urandom(10))
