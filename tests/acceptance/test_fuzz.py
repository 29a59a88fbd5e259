"""A short fuzzing of the API by its own document; the long one is the proof `fuzz-api`."""

from __future__ import annotations

import pytest

from tests.proofs.fuzz_api import run_fuzz
from tests.stack import Stack


@pytest.mark.stack
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_answer_is_one_the_document_declares() -> None:
    with Stack() as stack:  # its own: as an operator it drains cells and suspends tenants
        found = run_fuzz(stack, seconds=30)
    # How much of the API half a minute reaches depends on the machine; the proof asks for that, too.
    assert (found["findings"], found["answers_5xx"]) == ({}, 0), found
    assert found["operations_that_accepted_something"] > 0, found
