"""What a rule wants, and when a message is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.notifications.backoff import PAUSES, hold_after, pause_after
from controlplane.notifications.kinds import BY_ACTION, KINDS, OF_CELLS, offered
from controlplane.notifications.matching import Filters, wants

_DEAD = {
    "target_id": "tgt_mail",
    "jobs": [{"job_id": "job_1", "name": "billing nightly", "tags": ["prod", "eu"]}],
}


def _wanted(filters: Filters, *, kinds: tuple[str, ...] = ("run.dead_lettered",), **more: Any) -> bool:
    event: dict[str, Any] = {
        "kind": "run.dead_lettered", "subject": "job_1:x", "tenant_id": "tnt_a", "data": _DEAD, **more
    }  # fmt: skip
    return wants(kinds=kinds, filters=filters, **event)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(), True),
        (Filters(name_prefix="billing"), True),
        (Filters(name_prefix="nightly"), False),
        (Filters(tags=["staging", "eu"]), True),
        (Filters(tags=["staging"]), False),
        (Filters(target_ids=["tgt_mail"]), True),
        (Filters(target_ids=["tgt_other"]), False),
        (Filters(tenant_ids=["tnt_a"]), True),
        (Filters(tenant_ids=["tnt_b"]), False),
        (Filters(name_prefix="billing", tags=["staging"]), False),
    ],
)
def test_all_filters_must_hold(filters: Filters, wanted: bool) -> None:
    assert _wanted(filters) is wanted


def test_kinds() -> None:
    assert _wanted(Filters(), kinds=("*",))
    assert not _wanted(Filters(), kinds=("target.broken",))
    assert _wanted(Filters(target_ids=["tgt_1"]), kind="target.broken", kinds=("target.broken",),
                   subject="tgt_1", data={})  # fmt: skip


def test_an_event_without_jobs_fits_no_filter_of_jobs() -> None:
    assert not _wanted(Filters(tags=["eu"]), data={})
    assert not _wanted(Filters(name_prefix="b"), data={"jobs": "?"})


def test_kinds_have_one_meaning() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(BY_ACTION) == len([kind for kind in KINDS if kind.action])
    assert "run.dead_lettered" in OF_CELLS
    assert not any(kind.name.startswith("cell.s") for kind in offered(operators=False))
    assert set(offered(operators=True)) == set(KINDS)


def test_pauses_grow_and_differ() -> None:
    middle = [pause_after(n, draw=0.5) for n in range(1, 15)]
    assert middle[: len(PAUSES)] == list(PAUSES)
    assert middle[len(PAUSES) :] == [PAUSES[-1]] * 5
    assert pause_after(1, draw=0.0) < 5 < pause_after(1, draw=0.99)
    assert pause_after(1, draw=0.5, asked=120) == 120
    assert pause_after(1, draw=0.5, asked=10**9) == 3600
    assert [hold_after(n) for n in (1, 2, 5, 50)] == [5, 15, 300, 300]
