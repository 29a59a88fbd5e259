"""A short fuzzing of the API by its own document; the long one is the proof `fuzz-api`."""

from __future__ import annotations

import pytest

from tests.proofs.fuzz_api import run_fuzz
from tests.stack import Stack


@pytest.mark.stack
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_answer_is_one_the_document_declares(stack: Stack) -> None:
    found = run_fuzz(stack, seconds=30)
    assert found["holds"], found
