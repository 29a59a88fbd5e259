"""The proofs' claims at a smaller size, so that every run of the tests asks them."""

from __future__ import annotations

import pytest

from tests.proofs.crash import run_crash
from tests.proofs.static_stability import run_outage
from tests.recorder import Recorder
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]


def test_killed_cells_with_flushed_caches_lose_nothing_and_repeat_only_what_was_in_flight(
    stack: Stack,
) -> None:
    with Recorder(delay_seconds=0.05) as target:
        found = run_crash(stack, target, jobs=400)
    assert found["holds"], found


def test_cells_and_router_go_on_without_the_control_plane(stack: Stack) -> None:
    with Recorder() as target:
        found = run_outage(stack, target, outage_seconds=12)
    assert found["holds"], found
