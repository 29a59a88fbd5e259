"""Slow tasks: one at a time, whichever process runs them."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from billing.running import slow_alone


def _elsewhere() -> bool:
    """Whether another session may begin now."""
    found: list[bool] = []

    def work() -> None:
        try:
            with slow_alone() as mine:
                found.append(mine)
        finally:
            connections.close_all()

    other = threading.Thread(target=work)
    other.start()
    other.join()
    return found[0]


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_one_slow_task_runs_at_a_time(control: None) -> None:
    with slow_alone() as mine:
        assert mine
        assert not _elsewhere()
    assert _elsewhere()
    with pytest.raises(ValueError, match="broken"), slow_alone():
        raise ValueError("broken")
    assert _elsewhere()
