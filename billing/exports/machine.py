"""The life of an export, as a table."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ExportState(enum.StrEnum):
    """How an export is."""

    REQUESTED = "REQUESTED"  # waits for a worker
    RUNNING = "RUNNING"  # somebody writes it under a lease, or did until it lapsed
    DONE = "DONE"  # its files are whole and can be fetched
    FAILED = "FAILED"  # given up; `error` says why
    EXPIRED = "EXPIRED"  # its files are gone


class Dataset(enum.StrEnum):
    """What is exported."""

    USAGE = "USAGE"  # each hour's usage by metric, region policy and cell
    INVOICE_LINES = "INVOICE_LINES"  # lines of invoices that are numbered
    FOCUS = "FOCUS"  # cost and usage as FOCUS 1.2 has it


class Format(enum.StrEnum):
    """How files are written."""

    CSV = "CSV"  # UTF-8, comma, a line of names
    PARQUET = "PARQUET"  # amounts and quantities as exact decimals


class Cadence(enum.StrEnum):
    """How often a scheduled export is made."""

    DAILY = "DAILY"  # the day before; of what has months only, the month so far
    MONTHLY = "MONTHLY"  # the month before, once it is closed


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportTransition:
    """A named move. A source of None means that there is none yet."""

    name: str
    sources: frozenset[ExportState | None]
    destination: ExportState
    comment: str


def _move(name: str, source: ExportState | None, to: ExportState, comment: str) -> ExportTransition:
    return ExportTransition(name=name, sources=frozenset({source}), destination=to, comment=comment)


S = ExportState
TRANSITIONS: tuple[ExportTransition, ...] = (
    _move("request", None, S.REQUESTED, "somebody asked, or a schedule did"),
    _move("begin", S.REQUESTED, S.RUNNING, "a worker takes it under a lease"),
    _move("take_over", S.RUNNING, S.RUNNING, "the lease lapsed: another begins anew"),
    _move("retry", S.RUNNING, S.REQUESTED, "something was away; later again"),
    _move("finish", S.RUNNING, S.DONE, "the manifest is written"),
    _move("give_up", S.RUNNING, S.FAILED, "tried often enough, or it cannot be"),
    _move("expire", S.DONE, S.EXPIRED, "kept long enough"),
)
_BY_NAME = {t.name: t for t in TRANSITIONS}


def allowed(name: str, state: ExportState | None) -> bool:
    """Whether an export in `state` may make the named move."""
    return state in _BY_NAME[name].sources


def destination(name: str) -> ExportState:
    """Where the named move leads."""
    return _BY_NAME[name].destination
