"""A tenant moves while it works, and while what moves it is killed: the proofs at a smaller size."""

from __future__ import annotations

import pytest

from tests.proofs.move import run_move
from tests.proofs.move_crash import run_crashes
from tests.recorder import Recorder
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_tenant_moves_while_it_works(stack: Stack) -> None:
    with Recorder(delay_seconds=0.3) as target:
        found = run_move(stack, target, jobs=2000, runs_per_second=10)
    assert found["holds"], found


def test_a_move_comes_through_crashes(stack: Stack) -> None:
    cases = [("COPY", "control"), ("SEAL", "destination")]
    with Recorder(delay_seconds=0.2) as target:
        found = run_crashes(stack, target, cases=cases, jobs=500, gone=False)
    assert found["holds"], found
