"""Everything that people can be told of. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Origin(enum.Enum):
    """Who says that it happened."""

    CELL = "cell"  # the event feed of the tenant's cell
    AUDIT = "audit"  # an audit event of the control plane or of billing
    WATCH = "watch"  # the control plane looked, and found it


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of event. `tenants`: their rules may ask for it; operators' rules may ask for all."""

    name: str
    group: str
    says: str
    origin: Origin
    tenants: bool = True
    action: str = ""  # AUDIT: the action it follows from


def _cell(group: str, **says: str) -> list[Kind]:
    return [
        Kind(name=name.replace("__", "."), group=group, says=text, origin=Origin.CELL)
        for name, text in says.items()
    ]


def _audit(group: str, *rows: tuple[str, str, str], tenants: bool = True) -> list[Kind]:
    return [
        Kind(name=name, group=group, says=says, origin=Origin.AUDIT, action=action, tenants=tenants)
        for name, action, says in rows
    ]


def _watch(group: str, *rows: tuple[str, str], tenants: bool = True) -> list[Kind]:
    return [
        Kind(name=name, group=group, says=says, origin=Origin.WATCH, tenants=tenants) for name, says in rows
    ]


#: In the order in which people see them.
KINDS: tuple[Kind, ...] = (
    *_cell(
        "Runs",
        run__dead_lettered="a run failed for good, and is a dead letter",
        dispatch__late="occurrences wait for longer than they should",
        dispatch__recovered="occurrences start on time again",
        operation__ended="a change of many jobs, or a redrive, is done",
        operation__stopped="a change of many jobs, or a redrive, was stopped",
        backfill__ended="a backfill is done",
    ),
    *_cell(
        "Targets and workers",
        target__broken="a target fails, and is not called until a probe succeeds",
        target__recovered="a target works again",
        target__gone="a target answered 410 Gone, and is not called any more",
        target__pending="a target waits for a new approval",
        target__disabled="a target was disabled: runs that call it fail",
        task_queue__no_worker="tasks wait, and nobody polls their queue",
        task_queue__recovered="a queue is polled again",
        task_queue__workers_silent="workers fell silent together, or are heard again",
    ),
    *_cell(
        "Workflows",
        workflow__failed="a workflow failed",
        workflow__compensated="a workflow failed, and what it had done was undone",
        workflow__compensation_stuck="a workflow cannot undo what it did, and waits for somebody",
        workflow__history_near_limit="a workflow's history is nearly full",
        workflow__put_off="a workflow could not be decided, and is tried again later",
    ),
    *_cell(
        "Limits and money",
        quota__reached="a quota is reached: work waits, or requests are refused",
        budget__spent="the budget is spent, and LOW work waits",
    ),
    *_audit(
        "Limits and money",
        ("budget.reached", "budget.reached", "a part of the month's budget is used up"),
        ("invoice.final", "invoice.finalize", "an invoice is final"),
        ("invoice.paid", "invoice.pay", "an invoice is paid"),
        ("invoice.payment_failed", "invoice.payment_failed", "a payment failed"),
        ("invoice.credited", "invoice.credit", "a credit note was written"),
    ),
    *_audit(
        "Workspace",
        ("move.finished", "tenant.move_done", "the workspace moved to another cell"),
        ("move.given_up", "tenant.move_aborted", "a move to another cell was given up"),
        ("tenant.suspended", "tenant.suspend", "the workspace was suspended: nothing starts"),
        ("tenant.resumed", "tenant.resume", "the workspace works again"),
        ("tenant.erasure_requested", "tenant.erasure_request", "the workspace is to be erased"),
        ("tenant.erasure_cancelled", "tenant.erasure_cancel", "the workspace is not erased after all"),
        ("export.finished", "tenant_export.finish", "an export of everything is done"),
    ),
    *_audit(
        "People and keys",
        ("member.joined", "member.join", "somebody joined the workspace"),
        ("member.added", "member.add", "somebody was made a member"),
        ("member.removed", "member.remove", "somebody is no member any more"),
        ("member.role_changed", "member.change_role", "somebody has another role"),
        ("api_key.created", "api_key.create", "an API key was made"),
        ("api_key.rotated", "api_key.rotate", "an API key has a successor"),
        ("api_key.revoked", "api_key.revoke", "an API key was revoked"),
        ("support.visit", "support.begin", "an operator visits the workspace"),
        ("notification.stopped", "notification_rule.stop", "a notification rule was stopped"),
    ),
    *_watch("People and keys", ("api_key.expiring", "an API key ends within a week")),
    *_watch(
        "Workspace", ("cell.taken_over", "another site took the cell over: calls may have been repeated")
    ),
    *_audit(
        "Operators",
        ("tenant.created", "tenant.create", "a tenant was created"),
        (
            "tenant.erasure_began",
            "tenant.erasure_begin",
            "a tenant is being erased, and nothing brings it back",
        ),
        ("cell.state_changed", "cell.set_state", "a cell was opened, cordoned, drained or retired"),
        ("evacuation.started", "evacuation.start", "a region's cells are handed over, or brought back"),
        ("evacuation.paused", "evacuation.pause", "an evacuation was paused, or waits for somebody"),
        ("evacuation.resumed", "evacuation.resume", "an evacuation goes on"),
        ("evacuation.finished", "evacuation.done", "an evacuation is done"),
        ("evacuation.given_up", "evacuation.aborted", "an evacuation was given up"),
        ("rehearsal.started", "rehearsal.start", "a region is cut off on purpose, for a while"),
        ("rehearsal.finished", "rehearsal.done", "a rehearsal is done, and its report is there"),
        ("rehearsal.failed", "rehearsal.failed", "a rehearsal was given up"),
        ("cell.handed_over", "evacuation.cell_handed_over", "a cell was handed over to another region"),
        ("site.handover_asked", "site.hand_over", "an operator has a cell handed over"),
        ("site.rejoining", "site.rejoin", "a site that went on alone follows its cell's owner again"),
        ("site.given_up", "site.give_up", "STRICT opens without what only a site has that was passed over"),
        ("site.votes_overridden", "site.override", "a takeover goes on without votes that are missing"),
        tenants=False,
    ),
    *_watch(
        "Operators",
        ("cell.silent", "a cell does not answer the control plane"),
        ("cell.answering", "a cell answers again"),
        tenants=False,
    ),
)

BY_NAME: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in KINDS})
#: What follows from audit events, by their action.
BY_ACTION: Mapping[str, Kind] = MappingProxyType({kind.action: kind for kind in KINDS if kind.action})
#: What is read from cells.
OF_CELLS: tuple[str, ...] = tuple(kind.name for kind in KINDS if kind.origin is Origin.CELL)
#: Sent by the button that tries a rule.
TEST = "notification.test"


def offered(*, operators: bool) -> tuple[Kind, ...]:
    """What a rule may ask for."""
    return tuple(kind for kind in KINDS if operators or kind.tenants)


def says(name: str) -> str:
    """A kind in words."""
    if name == TEST:
        return "somebody tried this rule"
    found = BY_NAME.get(name)
    return found.says if found is not None else name.replace(".", " ").replace("_", " ")
