"""No tenant can see or change another's things, whatever it sends."""

from __future__ import annotations

import pytest

from tests.proofs.isolation import run_isolation
from tests.stack import Stack


@pytest.mark.stack
@pytest.mark.timeout(480)
def test_every_operation_is_closed_to_others(stack: Stack) -> None:
    found = run_isolation(stack)
    assert found["holds"], found
