"""What is wrong with a job that a request describes: its schedule, its target, whom it tells and what
it is given are looked at each by itself, so that one answer has every fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from cells.api.building import (
    check_delivery,
    check_region,
    check_store,
    payload_of,
    policy_of,
    resolve_target,
    to_definition,
)
from cells.api.callbacks import told_target
from cells.api.models import CallbackIn, JobIn, TargetIn
from cells.api.problems import Fault, Gathered, Problem, body_fault
from cells.api.reading import Fields, read_model
from cells.api.routing import Call
from cells.api.scheduling import more_schedule_faults
from cells.domain.job import JobDefinition, Schedule, TargetRef

T = TypeVar("T")
_target: TypeAdapter[TargetIn] = TypeAdapter(TargetIn)
_callback: TypeAdapter[CallbackIn] = TypeAdapter(CallbackIn)
_headers: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


class Judged(NamedTuple):
    """What a request comes to."""

    definition: JobDefinition
    payload: bytes | None


async def read_job(call: Call, fields: Fields) -> JobIn:
    """A body's members, without the payload, as a job; or a 422 with every fault."""
    try:
        return read_model(fields, JobIn)
    except Problem as problem:
        faults = problem
    raise faults.and_more(await more_faults(call, fields))


async def more_faults(call: Call, fields: Fields) -> list[Fault]:
    """What is wrong with the parts of a body that has other faults as well: those parts that can be read."""
    found = more_schedule_faults(call.services, fields)
    gathered = Gathered()
    headers = _read(_headers, fields.get("headers")) or {}
    if (target := _read(_target, fields.get("target"))) is not None:
        await gathered.of(lambda: resolve_target(call, target, headers))
    for name in ("on_success", "on_failure"):
        if (told := _read(_callback, fields.get(name))) is not None:
            await gathered.of(_telling(call, told, name))
    return found + gathered.faults


def _read(adapter: TypeAdapter[T], raw: msgspec.Raw | None) -> T | None:
    """A member, where it is there and can be read; what is wrong with it otherwise is told already."""
    if raw is None:
        return None
    try:
        return adapter.validate_json(bytes(raw))
    except ValidationError:
        return None


def _telling(call: Call, told: CallbackIn, name: str) -> Callable[[], Awaitable[TargetRef]]:
    return lambda: told_target(call, told, name)


def fixed_for_life(given: JobIn, old: JobDefinition) -> list[Fault]:
    """The fault of a body that would change what a job keeps for its life."""
    if given.region_policy is None or given.region_policy == old.region_policy:
        return []
    return [body_fault("/region_policy", f"is fixed for the job's life; it is {old.region_policy}")]


async def judged(
    call: Call,
    given: JobIn,
    *,
    schedule: Callable[[], Awaitable[Schedule]],
    target: Callable[[], Awaitable[TargetRef]] | None = None,
    payload: bytes | None = None,
    region_policy: str | None = None,
    also: Iterable[Fault] = (),
) -> Judged:
    """The definition and the payload of a well-formed job, or a 422 with every fault. `region_policy` is
    that of a job that is there; `also` are faults its caller found."""
    config = call.tenant.config
    found = Gathered(also)
    its_schedule = await found.of(schedule)
    its_target = await found.of(target or (lambda: resolve_target(call, given.target, given.headers)))
    callbacks: dict[str, Any] = {}
    for name in ("on_success", "on_failure"):
        if (told := getattr(given, name)) is not None:
            callbacks[name] = await found.of(_telling(call, told, name))
    policy = policy_of(given, region_policy, config)
    found.call(lambda: check_region(given, policy, leased=call.services.settings.leased))
    found.call(lambda: check_store(policy, own=call.services.settings.stores.own))
    found.call(lambda: check_delivery(given, policy))
    body = found.call(lambda: payload_of(given.target, payload))
    found.settle()
    if its_schedule is None or its_target is None:
        raise AssertionError("whatever is missing was told")
    definition = to_definition(given, its_schedule, its_target, config, region_policy=region_policy)
    if callbacks:
        definition = msgspec.structs.replace(definition, **callbacks)
    return Judged(definition, body)
