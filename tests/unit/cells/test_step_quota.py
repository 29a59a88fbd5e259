"""The quota of steps: who waits, and until when."""

from __future__ import annotations

import uuid

from cells.workflows.quota import StepQuota

TENANT = uuid.UUID(int=1)


def test_a_quota_that_is_raised_is_the_quota() -> None:
    quota = StepQuota()
    quota.begun(TENANT, 1, rate=0.0, now=0.0)
    assert quota.over(1_000.0)[0] == [TENANT]
    quota.changed({TENANT: 10.0, uuid.UUID(int=2): 1.0}, 1_000.0)
    assert quota.over(1_000.05)[0] == [TENANT], "what was begun is owed"
    assert quota.over(1_000.2) == ([], None)


def test_a_debt_is_paid_at_the_rate_of_now() -> None:
    quota = StepQuota()
    quota.begun(TENANT, 102, rate=1.0, now=0.0)
    quota.changed({TENANT: 100.0}, 1.0)
    waiting, soonest = quota.over(1.0)
    assert waiting == [TENANT]
    assert soonest is not None
    assert 0.9 < soonest < 1.1
