"""Whether a rule wants an event. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Stands for all kinds in a rule.
EVERYTHING = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What an event must be about. Empty ones ask for nothing; those that are set must all hold, and an event
    that names no job fits no filter of jobs."""

    name_prefix: str = ""  # of a job's name, or of a workflow's definition
    tags: Sequence[str] = field(default=())  # a job has at least one of them
    target_ids: Sequence[str] = field(default=())  # it is about one of them
    tenant_ids: Sequence[str] = field(default=())  # operators' rules: it is one of theirs

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Filters:
        """As a rule keeps them."""
        return cls(**{name: document[name] for name in FIELDS if name in document})


FIELDS = ("name_prefix", "tags", "target_ids", "tenant_ids")


def names_in(data: Mapping[str, Any]) -> Iterator[str]:
    """What the jobs and definitions that an event names are called."""
    for job in _jobs(data):
        if job.get("name"):
            yield str(job["name"])
    for field_ in ("name", "definition"):
        if isinstance(data.get(field_), str):
            yield data[field_]


def _jobs(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    jobs = data.get("jobs")
    return [job for job in jobs if isinstance(job, Mapping)] if isinstance(jobs, list) else []


def wants(
    *,
    kinds: Sequence[str],
    filters: Filters,
    kind: str,
    subject: str,
    tenant_id: str | None,
    data: Mapping[str, Any],
) -> bool:
    """Whether a rule of those kinds and filters wants an event."""
    if kind not in kinds and EVERYTHING not in kinds:
        return False
    if filters.tenant_ids and tenant_id not in filters.tenant_ids:
        return False
    if (
        filters.target_ids
        and subject not in filters.target_ids
        and data.get("target_id") not in filters.target_ids
    ):
        return False
    if filters.name_prefix and not any(n.startswith(filters.name_prefix) for n in names_in(data)):
        return False
    if filters.tags:
        had = {tag for job in _jobs(data) for tag in job.get("tags") or ()}
        return not had.isdisjoint(filters.tags)
    return True
