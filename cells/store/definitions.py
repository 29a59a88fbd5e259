"""Decoded definitions of recurring jobs, kept because every occurrence needs them again.

Versions are immutable, so an entry is never wrong. One-shot jobs are not kept: nobody asks for
them twice. Bounded by entries and by payload bytes; the oldest go first.
"""

from __future__ import annotations

import uuid

import msgspec

from cells.domain.job import JobDefinition, ScheduleType

#: With its payload, and the span that asked for it.
Version = tuple[JobDefinition, bytes | None, str | None]

_decode = msgspec.json.Decoder(JobDefinition).decode
_encode = msgspec.json.Encoder().encode
_RECURRING = (ScheduleType.CRON, ScheduleType.RATE)


def decode_definition(stored: bytes) -> JobDefinition:
    """From `job_versions.definition`."""
    return _decode(stored)


def encode_definition(definition: JobDefinition) -> bytes:
    """For `job_versions.definition`. What its calendar excludes is stored with the calendar."""
    if definition.schedule.excluded is not None:
        schedule = msgspec.structs.replace(definition.schedule, excluded=None)
        definition = msgspec.structs.replace(definition, schedule=schedule)
    return _encode(definition)


class DefinitionCache:
    """At most `entries` versions with at most `payload_bytes` of payloads."""

    def __init__(self, *, entries: int = 50_000, payload_bytes: int = 32 << 20) -> None:
        self._entries = entries
        self._payload_bytes = payload_bytes
        self._held = 0
        # Keyed by integers: a uuid's own hash is a call into Python.
        self._versions: dict[tuple[int, int, int], Version] = {}

    def get(self, tenant_id: uuid.UUID, job_id: uuid.UUID, version: int) -> Version | None:
        """The version, if it is kept."""
        return self._versions.get((tenant_id.int, job_id.int, version))

    def put(
        self,
        tenant_id: uuid.UUID,
        job_id: uuid.UUID,
        version: int,
        definition: JobDefinition,
        payload: bytes | None,
        traceparent: str | None,
    ) -> Version:
        """Keep a version if it may be asked for again."""
        decoded = (definition, payload, traceparent)
        key = (tenant_id.int, job_id.int, version)
        if decoded[0].schedule.type in _RECURRING and key not in self._versions:
            self._versions[key] = decoded
            self._held += len(payload or b"")
            while len(self._versions) > self._entries or self._held > self._payload_bytes:
                _, dropped, _ = self._versions.pop(next(iter(self._versions)))
                self._held -= len(dropped or b"")
        return decoded
