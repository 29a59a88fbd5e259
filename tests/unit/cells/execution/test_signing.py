"""The signatures are those that the standard's own library verifies."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from cells.execution.signing import SECRET_BYTES, Signer, show_secret

NEW, OLD, OTHER = (bytes([n]) * SECRET_BYTES for n in (1, 2, 3))
RUN = "job_01h455vb4pex5vsknk084sn02q:2026-09-28T00:00:00Z"


def headers(signature: str, timestamp: str) -> dict[str, str]:
    return {"webhook-id": RUN, "webhook-timestamp": timestamp, "webhook-signature": signature}


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8")))
def test_the_standards_library_accepts(text: str) -> None:
    body, timestamp = b'"' + text.encode() + b'"', str(int(time.time()))
    signature = Signer([NEW]).sign(RUN, timestamp, body)
    assert signature == Webhook(show_secret(NEW)).sign(
        RUN, datetime.fromtimestamp(int(timestamp), UTC), body.decode()
    )


def test_during_an_overlap_both_secrets_verify_and_no_other() -> None:
    timestamp = str(int(time.time()))
    signature = Signer([NEW, OLD]).sign(RUN, timestamp, b"{}")
    assert signature.count("v1,") == 2
    for secret in (NEW, OLD):
        Webhook(show_secret(secret)).verify(b"{}", headers(signature, timestamp))
    with pytest.raises(WebhookVerificationError):
        Webhook(show_secret(OTHER)).verify(b"{}", headers(signature, timestamp))


def test_id_time_and_body_are_covered() -> None:
    signer = Signer([NEW])
    base = signer.sign(RUN, "1", b"{}")
    assert (
        len(
            {
                base,
                signer.sign(RUN + ":1", "1", b"{}"),
                signer.sign(RUN, "2", b"{}"),
                signer.sign(RUN, "1", b""),
            }
        )
        == 4
    )


def test_without_secrets_there_is_no_signature() -> None:
    assert Signer([]).sign(RUN, "1", b"") == ""
