"""Callbacks: the runs that tell somebody how a job's run ended."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cells.domain.job import Delivery, JobDefinition, OverlapPolicy, RetryPolicy, TargetRef

SUCCESS = "on_success"
FAILURE = "on_failure"

#: About three hours of trying.
RETRIES = RetryPolicy(max_attempts=20, initial_backoff_seconds=10.0, max_backoff_seconds=900.0)

_SERIES = 1024
_ORDINALS = (2**31 - 1) // _SERIES


def callback_ordinal(ordinal: int, series: int) -> int:
    """The ordinal of the callback about a run's series: negative, and another one for each. Runs of one
    instant have ordinals near each other, so that counting in a circle makes none equal."""
    return -1 - (ordinal % _ORDINALS) * _SERIES - series % _SERIES


def ordinal_told_of(callback: int) -> int:
    """The ordinal of the run that a callback's ordinal is about."""
    return (-1 - callback) // _SERIES


def definition_of(definition: JobDefinition, which: str) -> JobDefinition:
    """How a callback is called: the job's choice of a target, our patience, nothing else of the job.
    A callback calls nobody back."""
    target = definition.on_success if which == SUCCESS else definition.on_failure
    return msgspec.structs.replace(
        definition,
        target=target if target is not None else definition.target,
        headers={},
        retry_policy=RETRIES,
        delivery=Delivery.AT_LEAST_ONCE,
        overlap_policy=OverlapPolicy.ALLOW,
        concurrency_key=None,
        max_concurrent=1,
        on_success=None,
        on_failure=None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Notify:
    """Whom a job's definition tells when a run ends for good, and what they are told of the job."""

    on_success: TargetRef | None
    on_failure: TargetRef | None
    version: int
    job_name: str | None
    job_key: str | None
    due_ms: int

    @staticmethod
    def of(definition: JobDefinition, version: int, due_ms: int) -> Notify | None:
        """For a run of that definition; None for a job that tells nobody."""
        if definition.on_success is None and definition.on_failure is None:
            return None
        return Notify(
            on_success=definition.on_success,
            on_failure=definition.on_failure,
            version=version,
            job_name=definition.name,
            job_key=definition.key,
            due_ms=due_ms,
        )
