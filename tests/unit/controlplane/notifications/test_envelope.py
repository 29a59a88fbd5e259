"""What goes over the wire, as others' libraries read it."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from controlplane.identity import new_id
from controlplane.notifications.envelope import BATCH, SINGLE, body_of, headers_of, show_secret
from controlplane.notifications.models import NotificationEvent


def _event(name: str) -> NotificationEvent:
    return NotificationEvent(
        event_id=name, tenant_id=new_id(), kind="run.dead_lettered", source="cell/c-1", subject="job_1:x",
        actor="", at=datetime(2026, 10, 1, 12, 0, 0, 123_456, tzinfo=UTC), data={"count": 2},
    )  # fmt: skip


def test_a_cloud_event() -> None:
    event = _event("evt_1_2_3")
    body, media_type = body_of([event], digest=False)
    document = json.loads(body)
    assert media_type == SINGLE
    assert (document["specversion"], document["id"]) == ("1.0", "evt_1_2_3")
    assert document["type"] == "clockhouse.run.dead_lettered"
    assert document["time"] == "2026-10-01T12:00:00.123Z"
    assert document["source"] == f"urn:clockhouse:tenant:{document['tenantid']}"
    assert document["data"] == {"count": 2}
    assert all(name.isalnum() and name == name.lower() for name in document)


def test_a_digest_is_a_batch() -> None:
    body, media_type = body_of([_event("a"), _event("b")], digest=True)
    assert media_type == BATCH
    assert [one["id"] for one in json.loads(body)] == ["a", "b"]


def test_both_secrets_verify_during_an_overlap() -> None:
    new, old, strange = os.urandom(32), os.urandom(32), os.urandom(32)
    body, media_type = body_of([_event("a")], digest=False)
    headers = headers_of(
        [new, old], webhook_id="ntd_1", timestamp=int(time.time()), body=body, media_type=media_type
    )
    for secret in (new, old):
        assert Webhook(show_secret(secret)).verify(body, dict(headers))["id"] == "a"
    with pytest.raises(WebhookVerificationError):
        Webhook(show_secret(strange)).verify(body, dict(headers))
