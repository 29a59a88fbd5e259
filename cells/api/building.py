"""From a well-formed request to a job that can be written."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import msgspec

from cells.api import paths
from cells.api.models import PAYLOAD_LIMIT, JobIn, TargetIn, TaskQueueTargetIn, WorkflowTargetIn
from cells.api.problems import Problem, body_fault, invalid, pointer_to, too_large
from cells.api.reading import Fields
from cells.api.routing import Call
from cells.api.scheduling import Planner
from cells.contract import ErrorCode
from cells.domain import ids
from cells.domain.claiming import Skip, swallowed
from cells.domain.job import (
    ONE_REGION,
    SINGLE_REGION,
    STRICT,
    Delivery,
    Gap,
    JobDefinition,
    JobState,
    Priority,
    RetryPolicy,
    Schedule,
    ScheduleType,
    TargetRef,
    TargetType,
)
from cells.domain.schedule import compile_schedule
from cells.domain.windows import due_at
from cells.ports import JobRow, Member, NewJob, TargetRow, TenantConfig

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


# --- targets -----------------------------------------------------------------------------
async def resolve_target(call: Call, given: TargetIn, headers: dict[str, str]) -> TargetRef:
    """The queue, the workflow, or the approved target that is meant and the path below it; a 422 if there
    is none."""
    if isinstance(given, WorkflowTargetIn):
        return await _workflow(call, given, headers)
    if isinstance(given, TaskQueueTargetIn):
        if headers:
            raise invalid([body_fault("/headers", "are sent with calls; a worker gets the payload alone")])
        return TargetRef(
            type=TargetType.TASK_QUEUE.value, task_queue=given.task_queue, lease_seconds=given.lease_seconds
        )
    targets = call.services.targets
    if given.url is not None:
        row = await targets.by_url(call.tenant_id, given.url)
        path = paths.below(row.base_url, given.url) if row is not None else None
        if row is None or path is None:
            raise _target_problem(
                ErrorCode.TARGET_NOT_REGISTERED,
                "/target/url",
                "lies under no approved target; register one with POST /v1/targets",
            )
    else:
        target_id = given.target_id or ""
        row = await targets.by_id(call.tenant_id, target_id)
        path = given.path or ""
        if row is None:
            raise _target_problem(
                ErrorCode.TARGET_NOT_REGISTERED,
                "/target/target_id",
                f"there is no target {target_id}; register one with POST /v1/targets",
            )
        if row.state != "APPROVED":
            raise _target_problem(
                ErrorCode.TARGET_NOT_APPROVED,
                "/target/target_id",
                f"the target {target_id} is {row.state}; jobs need an APPROVED one: POST"
                f" /v1/targets/{target_id}:approve",
            )
    _no_second_authorization(row, headers)
    return TargetRef(
        target_id=row.target_id, path=path, method=given.method, timeout_seconds=given.timeout_seconds
    )


async def _workflow(call: Call, given: WorkflowTargetIn, headers: dict[str, str]) -> TargetRef:
    faults = []
    if headers:
        faults.append(body_fault("/headers", "are sent with calls; a workflow gets its input alone"))
    found = await call.services.store.get_definition(call.tenant_id, given.definition, given.version)
    if found is None:
        faults.append(body_fault("/target/definition", no_definition(given.definition, given.version)))
    if faults:
        raise invalid(faults)
    return TargetRef(
        type=TargetType.WORKFLOW.value,
        definition=given.definition,
        definition_version=given.version,
        wait=given.wait,
    )


def no_definition(name: str, version: int | None) -> str:
    """What is wrong with a definition that is not registered."""
    which = name if version is None else f"{name} of version {version}"
    return f"there is no definition {which}; register it with PUT /v1/workflow-definitions/…/versions/…"


def payload_of(given: TargetIn, payload: bytes | None) -> bytes | None:
    """What a job's runs are given: its payload, or what its target says the workflow's input is."""
    if not isinstance(given, WorkflowTargetIn) or given.input is None:
        return payload
    if payload is not None:
        raise invalid([body_fault("/payload", "is the workflow's input; give it here or in target.input")])
    found = msgspec.json.encode(given.input)
    if len(found) > PAYLOAD_LIMIT:
        raise too_large(f"An input has at most {PAYLOAD_LIMIT} bytes; this one has {len(found)}.")
    return found


def _target_problem(code: ErrorCode, pointer: str, detail: str) -> Problem:
    sentence = f"The job's target cannot be used: {detail.removeprefix('the job')}."
    return Problem(422, code, sentence, errors=[body_fault(pointer, detail)])


def _no_second_authorization(row: TargetRow, headers: dict[str, str]) -> None:
    if row.auth.get("type") not in ("BEARER", "BASIC"):
        return
    for name in headers:
        if name.lower() == "authorization":
            raise invalid([body_fault(pointer_to("headers", name), "is set by the target's own auth")])


class TargetFinder:
    """`resolve_target` for many jobs of one request: what is not there is looked for once."""

    def __init__(self, call: Call):
        self._call = call
        self._missing: dict[tuple[str | None, str | None], Problem] = {}

    async def find(self, given: TargetIn, headers: dict[str, str]) -> TargetRef:
        """The approved target that is meant; a 422 if there is none."""
        if isinstance(given, TaskQueueTargetIn | WorkflowTargetIn):
            return await resolve_target(self._call, given, headers)
        key = (given.target_id, given.url)
        missing = self._missing.get(key)
        if missing is not None:
            raise missing.with_traceback(None)
        try:
            return await resolve_target(self._call, given, headers)
        except Problem as problem:
            if problem.code is not ErrorCode.INVALID:  # what its headers say is its own fault
                self._missing[key] = problem
            raise


# --- jobs --------------------------------------------------------------------------------
def to_definition(
    given: JobIn,
    schedule: Schedule,
    target: TargetRef,
    config: TenantConfig,
    *,
    region_policy: str | None = None,
) -> JobDefinition:
    """One version of a job, everything that was left to defaults filled in."""
    retry = given.retry_policy
    policy = policy_of(given, region_policy, config)
    check_delivery(given, policy)
    return JobDefinition(
        schedule=schedule,
        target=target,
        name=given.name,
        key=given.key,
        tags=tuple(given.tags),
        headers=given.headers,
        retry_policy=RetryPolicy(
            max_attempts=retry.max_attempts,
            initial_backoff_seconds=retry.initial_backoff_seconds,
            max_backoff_seconds=retry.max_backoff_seconds,
        ),
        priority=Priority[given.priority],
        dispatch_window_seconds=window_seconds(given.dispatch_window_seconds, schedule, config),
        misfire_policy=given.misfire_policy,
        misfire_grace_seconds=given.misfire_grace_seconds,
        overlap_policy=given.overlap_policy,
        region_policy=policy,
        delivery=given.delivery,
        concurrency_key=given.concurrency_key,
        max_concurrent=given.max_concurrent or 1,
    )


#: Why STRICT is refused.
NEEDS_REGIONS = "STRICT needs a cell with sites in several regions; this one has one"


def policy_of(given: JobIn, region_policy: str | None, config: TenantConfig) -> str:
    """The region policy: what was asked for, what the job has already, or the tenant's default."""
    return given.region_policy or region_policy or config.default_region_policy


def check_region(given: JobIn, policy: str, *, leased: bool) -> None:
    """A 422 where a job is to be known in other regions and the cell has none."""
    if policy == STRICT and not leased:
        detail = NEEDS_REGIONS
        if given.region_policy is None:
            detail += ". It is what the job had, or the tenant's default: give another one"
        raise invalid([body_fault("/region_policy", detail)])


def check_store(policy: str, *, own: int) -> None:
    """A 422 where a job is to be kept in a store that only has what stays in one region."""
    if own != ids.MAIN_STORE and policy != SINGLE_REGION:
        raise invalid(
            [body_fault("/region_policy", f"this store keeps SINGLE_REGION jobs; this is {policy}")]
        )


def check_delivery(given: JobIn, policy: str) -> None:
    """A 422 where a job is to run once at most, in a place where that cannot be kept."""
    if given.delivery is Delivery.AT_MOST_ONCE and policy not in ONE_REGION:
        detail = f"AT_MOST_ONCE needs the region_policy SINGLE_REGION or STRICT; this is {policy}"
        raise invalid([body_fault("/delivery", detail)])


def window_seconds(requested: int | None, schedule: Schedule, config: TenantConfig) -> int:
    """The window of a job: what was asked for, or the tenant's default for such a schedule."""
    if schedule.type is ScheduleType.NOW:
        return 0
    if requested is not None:
        return requested
    once = schedule.type is ScheduleType.ONCE
    # A default of 0 would make every job strict that says nothing.
    return max(1, config.default_once_window_seconds if once else config.default_window_seconds)


def first_state(given: JobIn) -> JobState:
    """The state a job is created in."""
    return JobState.PAUSED if given.paused else JobState.ACTIVE


def new_job(
    *,
    job_id: uuid.UUID,
    definition: JobDefinition,
    payload: bytes | None,
    config: TenantConfig,
    now: datetime,
    actor: str,
    traceparent: str | None,
    state: JobState = JobState.ACTIVE,
    keep: JobRow | None = None,
    planner: Planner | None = None,
) -> NewJob:
    """A job with its first timer. `keep`: the row whose next occurrence stands (an edit that does
    not touch the schedule); otherwise it is found from `now`."""
    schedule = definition.schedule
    planner = planner or Planner(config, now)
    window_ms = planner.window_ms(schedule, definition.dispatch_window_seconds)
    offset_ms = ids.offset_of(job_id, window_ms)
    if keep is not None:
        next_run_at = keep.next_run_at
        if schedule.type is ScheduleType.NOW:
            offset_ms = keep.offset_ms
    else:
        next_run_at = planner.first(schedule)
        if schedule.type is ScheduleType.NOW:
            # Due now to the millisecond, though runs are named by whole seconds.
            offset_ms = now.microsecond // 1000
    timer = None
    if state is JobState.ACTIVE and next_run_at is not None:
        timer = due_at(next_run_at, offset_ms)
        if keep is None:
            # A ONCE in the past is due now, and not late by all the time before it was made.
            timer = max(timer, now)
    passed = () if keep is not None else swallowed_ahead(schedule, now, next_run_at)
    return NewJob(
        job_id=job_id,
        definition=definition,
        payload=payload,
        shard=ids.shard_of(job_id),
        window_ms=window_ms,
        offset_ms=offset_ms,
        next_run_at=next_run_at,
        due_at=timer,
        state=state,
        actor=actor,
        created_at=now,
        traceparent=traceparent,
        passed=passed,
    )


def swallowed_ahead(schedule: Schedule, now: datetime, following: datetime | None) -> tuple[Skip, ...]:
    """What a new job will not run before its first occurrence. Almost no schedule has any."""
    if schedule.dst.gap is not Gap.SKIP and schedule.calendar is None:
        return ()
    if following is not None and following <= now:
        return ()
    return swallowed(compile_schedule(schedule), now, following)


def member_of(job: NewJob | JobRow, tenant_id: uuid.UUID, *, version: int) -> Member | None:
    """The timer of a waiting job, as the queue knows it; None if it does not wait."""
    if job.due_at is None or job.next_run_at is None:
        return None
    return Member(
        tenant_id=tenant_id,
        parent_id=job.job_id,
        scheduled_for=epoch_ms(job.next_run_at) // 1000,
        generation=version,
        priority=int(job.definition.priority),
        due_ms=epoch_ms(job.due_at),
        shard=job.shard,
    )


def epoch_ms(at: datetime) -> int:
    """Milliseconds since 1970, exactly."""
    return (at - _EPOCH) // _MILLISECOND


# --- merge patches -----------------------------------------------------------------------
_fields = msgspec.json.Decoder(Fields)
_encode = msgspec.json.Encoder().encode


def merged(target: Fields, patch: Fields) -> Fields:
    """RFC 7396, one level decoded at a time, so that what is not touched keeps its bytes."""
    result = dict(target)
    for name, raw in patch.items():
        text = bytes(raw).strip()
        if text == b"null":
            result.pop(name, None)
        elif text.startswith(b"{"):
            below = result.get(name)
            base = _fields.decode(below) if below is not None and bytes(below).lstrip()[:1] == b"{" else {}
            result[name] = msgspec.Raw(_encode(merged(base, _fields.decode(raw))))
        else:
            result[name] = raw
    return result
