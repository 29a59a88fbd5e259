"""Usage by job of a tenant that lived on several cells: pages of each make one list."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from billing.cells import JobCount, JobPage
from billing.grouping import merge

_UNTIL = datetime(2026, 11, 30, tzinfo=UTC)
CELLS = st.lists(st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 9)), max_size=3)


def _page(jobs: dict[str, int], after: str, limit: int) -> JobPage:
    found = sorted(job for job in jobs if job > after)[: limit + 1]
    counts = [JobCount(job_id=job, region_policy="HOME_ASYNC", runs=jobs[job]) for job in found]
    return JobPage(jobs=counts, complete_until=_UNTIL)


@given(CELLS, st.integers(1, 13))
def test_pages_hold_together_and_every_job_is_once(cells: list[dict[str, int]], limit: int) -> None:
    seen: list[tuple[str, int]] = []
    after, more = "", True
    while more:
        jobs, more = merge([_page(jobs, after, limit) for jobs in cells], limit)
        assert len(jobs) <= limit
        assert jobs or not more
        seen += [(job.job_id, job.runs) for job in jobs]
        after = jobs[-1].job_id if jobs else after
    wanted: dict[str, int] = {}
    for jobs_of in cells:
        for job, runs in jobs_of.items():
            wanted[job] = wanted.get(job, 0) + runs
    assert seen == sorted(wanted.items())
