"""For targets: is this call from Clockhouse, and must its work be done? Pure but for the clock.

`verify` checks the Standard Webhooks signature of a call. `Ledger` is the smallest honest answer to
the second question, in memory, and the model for the same in a database (README.md has the SQL).
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.client.errors import ClockhouseError

#: Seconds that a signature may be old, or ahead of the clock here.
TOLERANCE_SECONDS = 300
_PREFIX = "whsec_"


class NotVerified(ClockhouseError):
    """The call is not to be trusted. Answer 401 and do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A verified call. `idempotency_key` is the same for each attempt of one run; the fencing token
    grows with each, and a smaller one than was seen is from an executor that lost the run."""

    idempotency_key: str
    fencing_token: int | None
    attempt: int | None
    timestamp: int  # unix seconds
    body: bytes


def verify(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> Delivery:
    """Check a call's signature over its id, its time and its body **as received**.

    `secrets` are the target's `whsec_…` secrets: one, or several while they are being rotated.
    Raises `NotVerified`.
    """
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    signatures = found.get("webhook-signature", "")
    if not (message_id and stamp and signatures):
        raise NotVerified("webhook-id, webhook-timestamp or webhook-signature is missing")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise NotVerified("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise NotVerified("the call is too old, or a clock is wrong")
    given = [text.removeprefix("v1,").encode() for text in signatures.split() if text.startswith("v1,")]
    content = f"{message_id}.{stamp}.".encode() + body
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    wanted = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()) for key in keys]
    if not any(hmac.compare_digest(want, have) for want in wanted for have in given):
        raise NotVerified("no signature matches")
    # The id is signed; the bare Idempotency-Key header is the same text, but is not.
    return Delivery(
        idempotency_key=message_id,
        fencing_token=_number(found.get("x-fencing-token")),
        attempt=_number(found.get("x-clockhouse-attempt")),
        timestamp=int(stamp),
        body=body,
    )


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise NotVerified("the secret is not of the form whsec_<base64>") from None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


class Verdict(enum.Enum):
    """What to do with a call."""

    NEW = "new"  # do the work, then `finish`
    DONE = "done"  # the work was done: answer as then
    STALE = "stale"  # a later claim has been here: answer 409 and do nothing


class Ledger:
    """Remembers in memory which keys were seen, under which token, and which are done."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._done: dict[str, object] = {}

    def admit(self, delivery: Delivery) -> Verdict:
        """What to do with this call. One that is NEW takes the key away from older tokens."""
        key, token = delivery.idempotency_key, delivery.fencing_token or 0
        if key in self._done:
            return Verdict.DONE
        if token < self._tokens.get(key, 0):
            return Verdict.STALE
        self._tokens[key] = token
        return Verdict.NEW

    def finish(self, delivery: Delivery, answer: object = None) -> bool:
        """Record that the work is done. False: a later claim has taken over; undo, or do nothing."""
        key = delivery.idempotency_key
        if (delivery.fencing_token or 0) < self._tokens.get(key, 0) or key in self._done:
            return False
        self._done[key] = answer
        return True

    def answer(self, delivery: Delivery) -> object:
        """What `finish` was given."""
        return self._done[delivery.idempotency_key]
