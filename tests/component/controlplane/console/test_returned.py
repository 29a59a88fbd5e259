"""What came back with a region: its page and its file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.component.controlplane.console.cell import Cell
from tests.component.controlplane.console.conftest import Signed
from tests.component.controlplane.console.test_queues import shown

pytestmark = pytest.mark.django_db

PATH = "GET /v1/regions/reconciliation"
ENTRY: dict[str, Any] = {
    "region": "east", "epoch": 4, "at": "2026-11-30T06:00:00Z", "kind": "INTENT", "verb": "job.edit",
    "thing": "job", "id": "=job_1", "idempotency_key": None, "region_policy": "HOME_ASYNC", "state": None,
    "fencing_token": None, "times": None, "outcome": "CHANGED_SINCE", "note": "version 3 <b>",
    "settled_at": "2026-11-30T06:05:00Z", "here": None,
}  # fmt: skip


def test_what_came_back_is_shown_and_downloaded(cell: Cell, owner: Signed) -> None:
    cell.answers[PATH] = (200, {"items": [ENTRY], "next_cursor": None})
    page = shown(owner, "/returned")
    for text in ("east", "job.edit", "version 3 &lt;b&gt;", "Download CSV"):
        assert text in page
    file = owner.browser.get(f"{owner.base}/returned.csv")
    head, line = b"".join(file.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert head.startswith("region,epoch,at,kind,verb")
    assert ",'=job_1," in line
    cell.answers[PATH] = (200, {"items": [], "next_cursor": None})
    assert "clockhouse reconciliation download" in shown(owner, "/returned")
