"""Events in words."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.console.happenings import happening


def said(
    kind: str, data: dict[str, Any] | None = None, *, actor: str | None = None
) -> tuple[str, str, str, str]:
    event = {"type": kind, "subject": "sub", "at": "2026-11-30T06:20:00Z", "actor": actor, "data": data}
    found = happening(event, {"user:1": "ann@example.com"})
    return f"{found.about} {found.what}", found.look, found.page, found.key


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("job.paused", {"name": "Digest"}, ("Digest was paused", "wait", "job", "sub")),
        ("job.created", {"count": 1200}, ("1\u202f200 jobs were created", "mute", "jobs", "")),
        ("job.created", {"count": 1}, ("sub was created", "mute", "job", "sub")),
        (
            "run.dead_lettered",
            {"count": 3, "http_status": 500, "target_id": "tgt_a", "fingerprint": "f"},
            ("3 runs failed for good at tgt_a: HTTP 500", "bad", "dlq", "f"),
        ),
        (
            "run.dead_lettered",
            {"error": "timeout"},
            ("A run failed for good at its target: timeout", "bad", "run", "sub"),
        ),
        ("target.gone", {}, ("sub answered 410 Gone, and is not called any more", "bad", "target", "sub")),
        ("target.deleted", {}, ("sub was deleted", "mute", "", "sub")),
        (
            "operation.stopped",
            {"action": "pause", "total": 70},
            ("Pausing 70 jobs was stopped", "wait", "operation", "sub"),
        ),
        (
            "quota.reached",
            {"quota": "pending_timers"},
            ("Pending timers has reached its limit: requests are refused", "bad", "limits", ""),
        ),
        (
            "budget.spent",
            {},
            ("The budget is spent: LOW work waits until the month ends or it is changed", "wait", "", ""),
        ),
        (
            "operation.started",
            {"action": "redrive", "total": 1},
            ("Redriving 1 dead letter began", "live", "redrive", "sub"),
        ),
        (
            "operation.ended",
            {"action": "purge", "total": 7},
            ("Purging 7 dead letters is done", "good", "redrive", "sub"),
        ),
        (
            "backfill.stopped",
            {"backfill_id": "bf_1", "total": 5},
            ("A backfill of 5 occurrences was stopped", "wait", "backfill", "bf_1"),
        ),
        (
            "windows.lengthened",
            {"until": "B", "jobs": 3, "extra_seconds": 600.0},
            ("3 LOW jobs of sub to B start up to 600 seconds later", "wait", "", ""),
        ),
        ("workflow.failed", {"step": None}, ("Workflow sub failed", "bad", "", "")),
        ("run.redriven", {"series": 2}, ("A run that had failed for good begins anew", "mute", "run", "sub")),
        ("moon.has_landed", None, ("sub moon has landed", "mute", "", "")),
    ],
)
def test_each_kind(kind: str, data: dict[str, Any] | None, expected: tuple[str, str, str, str]) -> None:
    assert said(kind, data) == expected


@pytest.mark.parametrize(
    ("actor", "name"),
    [
        ("user:1", "ann@example.com"),
        ("user:2", "somebody who left"),
        ("key:abc", "API key abc"),
        ("service:x", "service:x"),
        (None, ""),
    ],
)
def test_actors_are_named(actor: str | None, name: str) -> None:
    event: dict[str, Any] = {"type": "job.paused", "subject": "s", "at": "x", "actor": actor}
    assert happening(event, {"user:1": "ann@example.com"}).actor == name
