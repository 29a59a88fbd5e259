"""What a target does with a call: signature, idempotency, fencing."""

from __future__ import annotations

import base64

import pytest
from standardwebhooks.webhooks import Webhook

from cells.execution.signing import Signer, show_secret
from controlplane.client.verification import Delivery, Ledger, NotVerified, Verdict, verify

RAW, OTHER = b"a" * 32, b"b" * 32
SECRET = show_secret(RAW)
RUN, NOW = "job_1:2026-09-28T12:00:00Z", 1_790_000_000
BODY = '{"ü": 1}'.encode()


def headers(*secrets: bytes, token: int = 5, **changes: str) -> dict[str, str]:
    made = {
        "Webhook-Id": RUN,
        "webhook-timestamp": str(NOW),
        "webhook-signature": Signer(secrets or (RAW,)).sign(RUN, str(NOW), BODY),
        "X-Fencing-Token": str(token),
        "X-Clockhouse-Attempt": "2",
    }
    return made | {name.replace("_", "-"): value for name, value in changes.items()}


def test_a_call_of_the_executor_is_verified() -> None:
    delivery = verify(SECRET, headers(), BODY, now=NOW + 10)
    assert delivery == Delivery(idempotency_key=RUN, fencing_token=5, attempt=2, timestamp=NOW, body=BODY)


def test_it_agrees_with_the_standards_own_library() -> None:
    hook = Webhook(base64.b64encode(RAW).decode())
    import datetime as dt

    signature = hook.sign(RUN, dt.datetime.fromtimestamp(NOW, dt.UTC), BODY.decode())
    assert verify(SECRET, headers(webhook_signature=signature), BODY, now=NOW).idempotency_key == RUN


def test_secrets_may_be_rotated_on_either_side() -> None:
    assert verify(SECRET, headers(OTHER, RAW), BODY, now=NOW)
    assert verify([show_secret(OTHER), SECRET], headers(RAW), BODY, now=NOW)


@pytest.mark.parametrize(
    ("changes", "body", "at"),
    [
        ({}, b"{}", NOW),
        ({"webhook_id": "job_2"}, BODY, NOW),
        ({"webhook_timestamp": str(NOW + 1)}, BODY, NOW),
        ({"webhook_timestamp": "-1"}, BODY, NOW),
        ({"webhook_signature": ""}, BODY, NOW),
        ({"webhook_signature": "v2,abc v1,"}, BODY, NOW),
        ({}, BODY, NOW + 301),
        ({}, BODY, NOW - 301),
    ],
)
def test_anything_else_is_not(changes: dict[str, str], body: bytes, at: int) -> None:
    given = {**headers(), **{name.replace("_", "-"): value for name, value in changes.items()}}
    if "webhook-id" in given:
        given.pop("Webhook-Id")
    with pytest.raises(NotVerified):
        verify(SECRET, given, body, now=at)
    with pytest.raises(NotVerified):
        verify(show_secret(OTHER), headers(), BODY, now=NOW)
    with pytest.raises(NotVerified, match="whsec_"):
        verify("whsec_not base64!", headers(), BODY, now=NOW)


def test_work_is_done_once_and_by_the_newest_claim() -> None:
    ledger = Ledger()
    old = verify(SECRET, headers(token=5), BODY, now=NOW)
    new = verify(SECRET, headers(token=6), BODY, now=NOW)
    assert ledger.admit(old) is Verdict.NEW
    assert ledger.admit(new) is Verdict.NEW  # the first executor was lost, and is not yet dead
    assert ledger.admit(old) is Verdict.STALE
    assert ledger.finish(old, "late") is False
    assert ledger.finish(new, "done") is True
    assert ledger.admit(new) is Verdict.DONE
    assert ledger.answer(new) == "done"
    assert ledger.finish(new, "again") is False
