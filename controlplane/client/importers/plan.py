"""What an importer makes of its source: jobs, what differs about them, and what was refused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from controlplane.client.errors import ClockhouseError


class CannotImport(ClockhouseError):
    """The source as a whole, or how it was asked for, is of no use."""


class CannotSay(ClockhouseError):
    """One entry cannot be said here. The message says why, and what could be done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something that will not be as it was. `about`: dst, zone, window, retry, misfire, target, …"""

    about: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """A job to be there after the import. `paused`: it was switched off, and shall be here."""

    source: str  # `line 12`, or a schedule's name
    key: str
    body: Mapping[str, Any]
    paused: bool = False
    differences: Sequence[Difference] = ()

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {
            "source": self.source,
            "key": self.key,
            "job": dict(self.body),
            "paused": self.paused,
            "differences": [{"about": d.about, "detail": d.detail} for d in self.differences],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """An entry that becomes no job."""

    source: str
    text: str
    reason: str

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {"source": self.source, "text": self.text, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The outcome of a translation. `differences` concern all jobs; `prefixes` are how the keys begin of
    all that an import of this source ever made."""

    jobs: Sequence[PlannedJob]
    refused: Sequence[Refused]
    differences: Sequence[Difference] = ()
    prefixes: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {
            "jobs": [job.document() for job in self.jobs],
            "refused": [refused.document() for refused in self.refused],
            "differences": [{"about": d.about, "detail": d.detail} for d in self.differences],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """Where the imported jobs call: a registered target, and a path for each, from a template such
    as `/cron/{slug}`. None of a setting: the default of the source or of the tenant."""

    target_id: str
    path: str
    tags: Sequence[str] = ()
    max_attempts: int | None = None
    window_seconds: int | None = None
    misfire_policy: str | None = None

    def body(self, **parts: str) -> dict[str, Any]:
        """The parts of a job that do not depend on its source."""
        try:
            path = self.path.format(**{name: quote(part, safe="") for name, part in parts.items()})
        except (KeyError, IndexError, ValueError):
            known = ", ".join(f"{{{name}}}" for name in parts)
            raise CannotImport(f"the path {self.path!r} may hold {known}, and no other braces") from None
        body: dict[str, Any] = {"target": {"type": "HTTP", "target_id": self.target_id, "path": path}}
        if self.tags:
            body["tags"] = list(self.tags)
        if self.max_attempts is not None:
            body["retry_policy"] = {"max_attempts": self.max_attempts}
        if self.misfire_policy is not None:
            body["misfire_policy"] = self.misfire_policy
        return body


def slug(text: str, length: int = 40) -> str:
    """A text as part of a key or a path."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:length].strip("-") or "job"


def digest(*parts: str) -> str:
    """A few characters that tell texts apart."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def display_name(text: str) -> str:
    """A text as the name of a job."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip()[:200] or "imported"
