"""The body of a batch of jobs, for the OpenAPI document; `batches.py` reads it item by item."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from cells.api.models import JobIn
from cells.api.texts import Body

#: Jobs in one request.
BATCH_LIMIT = 1000


class BatchItemIn(JobIn):
    """A job of a batch."""

    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = Field(
        default=None, description="The same key and job are answered as before, for 24 hours."
    )


class BatchIn(Body):
    """Jobs to create, each by itself."""

    jobs: list[BatchItemIn] = Field(min_length=1, max_length=BATCH_LIMIT)
