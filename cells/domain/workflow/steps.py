"""Reads steps and compensations, one kind after the other."""

from __future__ import annotations

from collections.abc import Callable

from cells.domain.workflow.definition import (
    UNLIMITED,
    Activity,
    ContinueAsNew,
    Do,
    Map,
    OnTimeout,
    Parallel,
    Sleep,
    StartWorkflow,
    Step,
    StepRetry,
    WaitForSignal,
)
from cells.domain.workflow.reading import Reader

RETRY = StepRetry(max_attempts=3, initial_ms=10_000, max_ms=600_000)
#: What was done is undone however long it takes.
COMPENSATION_RETRY = StepRetry(max_attempts=UNLIMITED, initial_ms=10_000, max_ms=3_600_000)
#: Retries never wait longer than this (milliseconds).
BACKOFF_LIMIT_MS = 24 * 3_600_000
TIMEOUT_LIMIT_MS = 24 * 3_600_000
#: An HTTP call may not take longer (milliseconds).
CALL_LIMIT_MS = 900_000
ATTEMPTS_LIMIT = 1000
BRANCH_LIMIT = 50
DEFAULT_CONCURRENCY = 10
CONCURRENCY_LIMIT = 100
_DEPTH_LIMIT = 8

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_KINDS = (
    "activity", "wait_for_signal", "sleep", "sleep_until", "parallel", "map", "start_workflow",
    "continue_as_new",
)  # fmt: skip
_COMMON = ("id", "when")
#: Fields that belong to some kinds only.
_OWN = {
    "activity": ("input", "timeout", "retry", "compensate_with"),
    "wait_for_signal": ("on_timeout",),
    "start_workflow": ("compensate_with",),
}


def read_steps(reader: Reader, depth: int = 0) -> tuple[Step, ...]:
    """A list of steps."""
    if depth > _DEPTH_LIMIT:
        reader.fault(f"steps nest deeper than {_DEPTH_LIMIT}")
        return ()
    found = [_read_step(item, depth) for item in reader.items()]
    return tuple(step for step in found if step is not None)


def read_compensations(reader: Reader) -> dict[str, Step]:
    """The list of compensations, by id."""
    found: dict[str, Step] = {}
    for item in reader.items(least=0):
        fields = item.mapping(required=("id", "activity"), optional=("input", "timeout", "retry"))
        name = fields["id"].identifier() if "id" in fields else None
        if name in found:
            fields["id"].fault(f"the compensation `{name}` is there twice")
        if name is None or "activity" not in fields:
            continue
        activity = _activity(fields, COMPENSATION_RETRY)
        if activity is not None:
            found[name] = Step(id=name, do=activity, line=item.line)
    return found


def _read_step(item: Reader, depth: int) -> Step | None:
    own = {name for fields in _OWN.values() for name in fields}
    fields = item.mapping(required=("id",), optional=(*_COMMON[1:], *_KINDS, *sorted(own)))
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        item.fault(
            f"is to do one thing, and has {', '.join(kinds)}"
            if kinds
            else f"is to do one of {', '.join(_KINDS)}"
        )
    name = fields["id"].identifier() if "id" in fields else None
    when = fields["when"].expression() if "when" in fields else None
    undo = fields["compensate_with"].identifier() if "compensate_with" in fields else None
    if len(kinds) != 1:
        return None
    kind = kinds[0]
    for field in own - set(_OWN.get(kind, ())):
        if field in fields:
            fields[field].fault(f"`{field}` does not go with `{kind}`")
    do = _READERS[kind](fields, depth)
    if name is None or do is None:
        return None
    return Step(id=name, do=do, when=when, compensate_with=undo, line=item.line)


# --- kinds -------------------------------------------------------------------------------
def _activity(fields: dict[str, Reader], retry: StepRetry) -> Activity | None:
    place = fields["activity"]
    inner = place.mapping(optional=("task_queue", "type", "target_id", "path", "method"))
    pulled, pushed = "task_queue" in inner, "target_id" in inner
    if pulled == pushed:
        place.fault("needs either task_queue (and type), or target_id (and path, method)")
        return None
    for field in ("path", "method") if pulled else ("type",):
        if field in inner:
            inner[field].fault(f"`{field}` does not go with `{'task_queue' if pulled else 'target_id'}`")
    if pulled and "type" not in inner:
        place.fault("needs `type`: what a worker is to do")
    path = inner["path"].text(most=2048) if "path" in inner else ""
    if path and not path.startswith("/"):
        inner["path"].fault("a path begins with `/`")
    timeout = fields["timeout"].duration() if "timeout" in fields else 30_000
    limit = TIMEOUT_LIMIT_MS if pulled else CALL_LIMIT_MS
    if timeout is not None and not 1000 <= timeout <= limit:
        fields["timeout"].fault(f"is to be from 1s to {limit // 1000}s")
    return Activity(
        task_queue=inner["task_queue"].text(most=128) if pulled else None,
        type=inner["type"].text(most=128) if pulled and "type" in inner else None,
        target_id=inner["target_id"].text(most=64) if pushed else None,
        path=path or "",
        method=(inner["method"].choice(_METHODS) or "POST") if "method" in inner else "POST",
        timeout_ms=timeout or 30_000,
        retry=_retry(fields["retry"], retry) if "retry" in fields else retry,
        input=fields["input"].template() if "input" in fields else None,
    )


def _retry(reader: Reader, default: StepRetry) -> StepRetry:
    fields = reader.mapping(optional=("max_attempts", "initial_backoff", "max_backoff"))
    attempts: int | None = default.max_attempts
    if given := fields.get("max_attempts"):
        attempts = UNLIMITED
        if given.plain() != "unlimited":
            attempts = given.integer(least=1, most=ATTEMPTS_LIMIT)
    initial = fields["initial_backoff"].duration() if "initial_backoff" in fields else default.initial_ms
    most = fields["max_backoff"].duration() if "max_backoff" in fields else None
    if most is None:
        most = max(default.max_ms, initial or 0)
    if initial is not None and initial > most:
        reader.fault("initial_backoff is longer than max_backoff")
    if most > BACKOFF_LIMIT_MS:
        reader.fault("max_backoff is longer than 24h")
    return StepRetry(
        max_attempts=default.max_attempts if attempts is None else attempts,
        initial_ms=initial or default.initial_ms,
        max_ms=most,
    )


def _wait(fields: dict[str, Reader], _depth: int) -> Do | None:
    inner = fields["wait_for_signal"].mapping(required=("name",), optional=("timeout",))
    name = inner["name"].identifier() if "name" in inner else None
    timeout = inner["timeout"].duration() if "timeout" in inner else None
    then = OnTimeout.FAIL
    if given := fields.get("on_timeout"):
        then = OnTimeout(given.choice([each.value for each in OnTimeout]) or OnTimeout.FAIL)
        if "timeout" not in inner:
            given.fault("on_timeout needs a timeout in wait_for_signal")
    return None if name is None else WaitForSignal(name=name, timeout_ms=timeout, on_timeout=then)


def _sleep(fields: dict[str, Reader], _depth: int) -> Do | None:
    return Sleep(for_ms=fields["sleep"].duration())


def _sleep_until(fields: dict[str, Reader], _depth: int) -> Do | None:
    return Sleep(until=fields["sleep_until"].template())


def _parallel(fields: dict[str, Reader], depth: int) -> Do | None:
    inner = fields["parallel"].mapping(required=("branches",))
    if "branches" not in inner:
        return None
    branches = inner["branches"].items()
    if len(branches) > BRANCH_LIMIT:
        inner["branches"].fault(f"has more than {BRANCH_LIMIT} branches")
    return Parallel(branches=tuple(read_steps(branch, depth + 1) for branch in branches))


def _map(fields: dict[str, Reader], depth: int) -> Do | None:
    inner = fields["map"].mapping(required=("over", "as", "steps"), optional=("max_concurrency",))
    over = inner["over"].expression() if "over" in inner else None
    name = inner["as"].identifier() if "as" in inner else None
    if name in ("input", "steps", "signals", "workflow"):
        inner["as"].fault(f"`{name}` has a meaning of its own")
    steps = read_steps(inner["steps"], depth + 1) if "steps" in inner else ()
    most: int | None = DEFAULT_CONCURRENCY
    if given := inner.get("max_concurrency"):
        most = given.integer(least=1, most=CONCURRENCY_LIMIT)
    if over is None or name is None or not steps:
        return None
    return Map(over=over, name=name, steps=steps, max_concurrency=most or DEFAULT_CONCURRENCY)


def _start(fields: dict[str, Reader], _depth: int) -> Do | None:
    inner = fields["start_workflow"].mapping(required=("definition",), optional=("version", "input", "wait"))
    name = inner["definition"].text(most=64) if "definition" in inner else None
    version = inner["version"].integer(least=1, most=2**31 - 1) if "version" in inner else None
    given = inner["input"].template() if "input" in inner else None
    wait = inner["wait"].boolean() if "wait" in inner else True
    if name is None:
        return None
    return StartWorkflow(definition=name, version=version, input=given, wait=wait is not False)


def _again(fields: dict[str, Reader], _depth: int) -> Do | None:
    inner = fields["continue_as_new"].mapping(optional=("input",))
    return ContinueAsNew(input=inner["input"].template() if "input" in inner else None)


_READERS: dict[str, Callable[[dict[str, Reader], int], Do | None]] = {
    "activity": lambda fields, _: _activity(fields, RETRY),
    "wait_for_signal": _wait,
    "sleep": _sleep,
    "sleep_until": _sleep_until,
    "parallel": _parallel,
    "map": _map,
    "start_workflow": _start,
    "continue_as_new": _again,
}
