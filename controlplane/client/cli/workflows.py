"""`clockhouse workflows`: starting, reading, telling and changing executions."""

from __future__ import annotations

import time
import uuid
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import typer
from rich.console import Group
from rich.markup import escape

from controlplane.client.cli.job_options import Limit, Payload, Yes
from controlplane.client.cli.reading import payload_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import counted, listed
from controlplane.client.cli.workflow_tables import (
    history_table,
    reconciliation_table,
    timeline_table,
    workflow_card,
    workflows_table,
)
from controlplane.client.waiting import check_deadline, pauses
from controlplane.client.workflow_documents import Timeline, Workflow

app = typer.Typer(no_args_is_help=True, help="Workflows: steps in their order, that survive any crash.")

WorkflowId = Annotated[str, typer.Argument(metavar="WORKFLOW", help="The id its starter chose.")]
Execution = Annotated[str | None, typer.Option("--execution", help="An earlier one of that id: wr_…")]
Reason = Annotated[str | None, typer.Option(help="Kept in the history.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Stay until it has ended; exit status 1 unless it is well.")
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait.")]


#: Kinds of steps that do something; waits and timers leave nothing to undo.
_WORK = ("activity", "child")


@command(app, "start")
def start(
    session: Session,
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="Its name.")],
    id_: Annotated[str | None, typer.Option("--id", help="Yours; made up if absent.")] = None,
    version: Annotated[int | None, typer.Option(help="The newest, if absent.")] = None,
    input_: Annotated[
        str | None, typer.Option("--input", "-i", help="JSON, or @file, or @- for stdin.")
    ] = None,
    new_id: Annotated[
        bool, typer.Option("--new-id", help="Refused if any workflow had the id, even one that is closed.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = 300.0,
) -> None:
    """Start a workflow. The same start again answers the one it began; another start under the id of one that
    is closed begins another one, and says so."""
    workflow_id = id_ or f"{definition}-{uuid.uuid4().hex[:8]}"
    given = payload_of(input_, name="input")
    reuse: Literal["REJECT"] | None = "REJECT" if new_id else None
    begun = session.client.workflows.start(workflow_id, definition, version=version, id_reuse=reuse, **given)
    if wait:
        _end(session, workflow_id, timeout, well=("COMPLETED",))
        return
    word = "started" if begun.created else "was started before, by this start"
    if begun.previous is not None:
        before = begun.previous
        word = f"started anew (the one before, {before.run_id}, is {before.status.lower()})"
    hint = f"`clockhouse workflows show {workflow_id}` tells where it stands."
    session.answer(
        begun.raw, lambda: f"{workflow_id} {word}, under {begun.definition} {begun.version}. {hint}"
    )


@command(app, "list")
def list_(
    session: Session,
    status: Annotated[
        str | None, typer.Option(help="RUNNING, COMPENSATING, COMPENSATION_STUCK, COMPLETED, FAILED, …")
    ] = None,
    definition: Annotated[str | None, typer.Option("--definition", "-d", help="Of this definition.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Whose id begins so.")] = None,
    limit: Limit = 50,
) -> None:
    """List workflows, the latest start first."""
    walk = session.client.workflows.list(
        status=status.upper() if status else None,
        definition=definition,
        prefix=prefix,
        limit=min(limit, 200) if limit > 0 else 200,
    )
    found = session.take(walk, limit)
    session.answer(documents(found), lambda: workflows_table(found, session.now))


@command(app, "reconciliation")
def reconciliation(session: Session, limit: Limit = 20) -> None:
    """List workflows to compare with the other side's books: stuck in undoing, or having undone what may
    not have happened; with the keys under which the other side knows each step."""
    walk = session.client.workflows.reconciliation(limit=min(limit, 50) if limit > 0 else 50)
    found = session.take(walk, limit)
    session.answer(documents(found), lambda: reconciliation_table(found, session.now))


@command(app, "show")
def show(session: Session, workflow: WorkflowId, execution: Execution = None) -> None:
    """Show where a workflow stands, and when each step began, waited, ran and ended."""
    found = session.client.workflows.get(workflow, run_id=execution)
    steps = session.client.workflows.timeline(workflow, run_id=found.run_id)
    session.answer(
        {**found.raw, "timeline": steps.raw.get("steps", [])}, lambda: _shown(session, found, steps)
    )


def _shown(session: Session, found: Workflow, steps: Timeline) -> Group:
    return Group(workflow_card(found, session.now), "", timeline_table(steps, found, session.now))


@command(app, "history")
def history(
    session: Session,
    workflow: WorkflowId,
    execution: Execution = None,
    after: Annotated[int, typer.Option(help="Behind this sequence.")] = 0,
    limit: Limit = 200,
) -> None:
    """Show what was recorded, in its order."""
    walk = session.client.workflows.history(
        workflow, run_id=execution, after=after, limit=min(limit, 1000) if limit > 0 else 1000
    )
    events = session.take(walk, limit)
    session.answer(documents(events), lambda: history_table(events, session.now))


@command(app, "wait")
def wait(session: Session, workflow: WorkflowId, timeout: Timeout = 300.0) -> None:
    """Wait until a workflow has ended; exit status 1 unless all its steps were done."""
    _end(session, workflow, timeout, well=("COMPLETED",))


@command(app, "signal")
def signal(
    session: Session,
    workflow: WorkflowId,
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="What a step waits for.")],
    payload: Payload = None,
    signal_id: Annotated[
        str | None, typer.Option(help="The same one again changes nothing; made up if absent.")
    ] = None,
) -> None:
    """Send a signal. Before anybody waits for it, it is kept; exit status 1 if it came too late."""
    found = session.client.workflows.signal(
        workflow, name, payload_of(payload).get("payload"), signal_id=signal_id
    )
    words = {
        "accepted": "is taken",
        "duplicate": "was sent before; nothing was changed",
        "late": "came too late: it is recorded, and changes nothing",
    }
    session.answer(
        found.raw,
        lambda: f"{name} to {workflow} {words.get(found.status, found.status)} ({found.signal_id}).",
    )
    if found.status == "late":
        raise typer.Exit(BAD_OUTCOME)


@command(app, "cancel")
def cancel(
    session: Session,
    workflow: WorkflowId,
    execution: Execution = None,
    reason: Reason = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = 300.0,
) -> None:
    """Ask a workflow to stop: what is under way ends, then what was done is undone."""
    then = "what can be undone is"
    shown, standing = _standing(session, workflow, execution, then)
    session.confirm(f"Cancel {workflow}? {standing}", yes=yes)
    found = session.client.workflows.cancel(workflow, reason=reason, run_id=shown)
    if wait:
        _end(session, workflow, timeout, well=("CANCELLED",))
        return
    session.answer(found.raw, lambda: f"{workflow} is asked to stop; what it did is being undone.")


@command(app, "terminate")
def terminate(
    session: Session,
    workflow: WorkflowId,
    execution: Execution = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """End a workflow at once. Nothing is undone."""
    shown, standing = _standing(session, workflow, execution, "nothing is undone")
    session.confirm(f"Terminate {workflow}? {standing}", yes=yes)
    found = session.client.workflows.terminate(workflow, reason=reason, run_id=shown)
    session.answer(found.raw, lambda: f"{workflow} ends as it is. Nothing is undone.")


def _standing(session: Session, workflow: str, execution: str | None, then: str) -> tuple[str, str]:
    """Which execution an end is for, and what it will touch, in numbers."""
    timeline = session.client.workflows.timeline(workflow, run_id=execution)
    steps = timeline.steps
    forward = [step for step in steps if not step.compensates and step.kind in _WORK]
    open_ = [
        step.step for step in steps if not step.compensates and step.state == "OPEN" and step.kind != "group"
    ]
    done = sum(step.state == "COMPLETED" for step in forward)
    under = f"under way: {listed(open_)}" if open_ else "nothing is under way"
    return timeline.run_id, f"{counted(done, 'step')} done, of which {then}; {under}."


@command(app, "reset")
def reset(
    session: Session,
    workflow: WorkflowId,
    step: Annotated[str, typer.Option(help="What runs again, with all behind it; ship[2] inside a map.")],
    yes: Yes = False,
) -> None:
    """Go back to a step: another execution goes on from there, and this one ends. Nothing is undone."""
    steps = session.client.workflows.timeline(workflow).steps
    place = next((i for i, one in enumerate(steps) if one.step == step), None)
    if place is None:
        begun = listed([one.step for one in steps])
        raise Wrong(f"the step {step} has not begun in {workflow}; there are {begun}")
    again = len([one for one in steps[place:] if not one.compensates])
    asked = f"{counted(again, 'step')} from {step} on may run again, and nothing is undone."
    session.confirm(f"Reset {workflow}? {asked}", yes=yes)
    found = session.client.workflows.reset(workflow, step)
    session.answer(found.raw, lambda: f"{workflow} goes on from {step} as {found.run_id}.")


@command(app, "migrate")
def migrate(
    session: Session,
    workflow: WorkflowId,
    to: Annotated[int, typer.Option("--to", help="A registered version of its definition.")],
) -> None:
    """Let a workflow go on under another version. Refused, with the first event that differs, where that
    would have recorded something else."""
    found = session.client.workflows.migrate(workflow, to)
    session.answer(found.raw, lambda: f"{workflow} goes on under {found.definition} {found.version}.")


@command(app, "resolve")
def resolve(
    session: Session,
    workflow: WorkflowId,
    execution: Execution = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what did not succeed.")] = False,
    close: Annotated[bool, typer.Option("--close", help="Close it as it is.")] = False,
    note: Annotated[str | None, typer.Option(help="Kept in the history.")] = None,
    yes: Yes = False,
) -> None:
    """Decide about a workflow whose compensation is stuck."""
    if retry == close:
        raise Wrong("say --retry or --close")
    timeline = session.client.workflows.timeline(workflow, run_id=execution)
    if close:
        left = [one.step for one in timeline.steps if one.compensates and one.state != "COMPLETED"]
        session.confirm(f"Close {workflow}? Not undone: {listed(left)}.", yes=yes)
    found = session.client.workflows.resolve(
        workflow, "close" if close else "retry", note=note, run_id=timeline.run_id
    )
    done = "is closed as it is" if close else "tries again what did not succeed"
    session.answer(found.raw, lambda: f"{workflow} {done}.")


def _end(session: Session, workflow: str, timeout: float, *, well: tuple[str, ...]) -> None:
    """Wait for the end, telling which steps are under way; then show it."""
    found = _followed(session, workflow, timeout)
    steps = session.client.workflows.timeline(workflow, run_id=found.run_id)
    session.answer(
        {**found.raw, "timeline": steps.raw.get("steps", [])}, lambda: _shown(session, found, steps)
    )
    if found.status not in well:
        raise typer.Exit(BAD_OUTCOME)


def _followed(session: Session, workflow: str, timeout: float) -> Workflow:
    deadline = time.monotonic() + timeout
    told: Any = session.err.status(f"{escape(workflow)} …") if session.err.is_terminal else nullcontext()
    with told as line:
        for pause in pauses():
            found = session.client.workflows.get(workflow)
            if not found.open:
                return found
            if line is not None:
                line.update(f"{escape(workflow)}: {escape(listed(found.current_steps))} …")
            left = deadline - time.monotonic()
            time.sleep(check_deadline(workflow, found.status, pause, left, timeout))
    raise AssertionError("pauses never end")
