"""What every command shares: options, the client, output, and how errors end."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from controlplane.client.errors import (
    ApiError,
    ClockhouseError,
    ConfigurationError,
    QuotaExceeded,
    ServerError,
    TransportError,
)
from controlplane.client.sync import Clockhouse

P = ParamSpec("P")
T = TypeVar("T")

#: Wide enough that no table in a pipe is cut.
_PIPE_WIDTH = 250
OK, BAD_OUTCOME, USAGE, NOT_ALLOWED, NOT_FOUND, CONFLICT, INVALID, LIMITED, AWAY = range(9)
INTERRUPTED = 130
#: As `clockhouse --help` ends. README.md has the same, and which commands end with 1.
EXIT_STATUSES = "\n\n".join(
    (
        "Exit status of every command:",
        "0 done",
        "1 done with a bad outcome: what was waited for failed, some of several (`import`) were refused",
        "2 the command line, a file or a profile is wrong",
        "3 no key, or one that may not",
        "4 no such thing",
        "5 a conflict with how things stand now",
        "6 the API refused the request as invalid, with every fault",
        "7 a quota or a rate limit",
        "8 the API is away, or did not answer in time",
        "130 interrupted",
        "`--json` on every command is for machines.",
    )
)
_BY_STATUS = {400: INVALID, 401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT}


class Wrong(ClockhouseError):
    """What was typed, or a file that was named, is of no use."""


class Session:
    """One run of one command."""

    def __init__(
        self, *, as_json: bool, profile: str | None, api_url: str | None, tenant: str | None
    ) -> None:
        self.as_json = as_json
        self.profile = profile
        self.api_url = api_url
        self.tenant = tenant
        self._client: Clockhouse | None = None
        self._http: httpx.Client | None = None
        self._silent: set[str] = set()  # regions that an answer was without
        self.now = datetime.now(UTC)
        self.out = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
        self.err = Console(stderr=True, highlight=False)

    @property
    def client(self) -> Clockhouse:
        """The API, under the chosen profile."""
        if self._client is None:
            self._http = httpx.Client(event_hooks={"response": [self._note_regions]})
            self._client = Clockhouse(
                self.api_url, tenant_id=self.tenant, profile=self.profile, product="cli", http=self._http
            )
        return self._client

    def close(self) -> None:
        """Give connections back."""
        if self._client is not None:
            self._client.close()
        if self._http is not None:
            self._http.close()

    def _note_regions(self, response: httpx.Response) -> None:
        """Say which regions an answer is without, each once."""
        if response.headers.get("content-type", "").partition(";")[0] != "application/json":
            return
        response.read()
        if b'"unreachable_regions"' not in response.content:
            return
        found = response.json()
        silent = found.get("unreachable_regions") if isinstance(found, dict) else None
        for region in sorted(set(silent or ()) - self._silent):
            self._silent.add(region)
            self.say(
                f"[yellow]{escape(region)} does not answer: what is kept there alone (SINGLE_REGION) is not"
                " in the answer.[/yellow]"
            )

    # --- saying things -----------------------------------------------------------------------
    def say(self, message: str) -> None:
        """A message beside the answer."""
        self.err.print(message)

    def answer(self, document: object, human: Callable[[], object] | None = None) -> None:
        """The answer of the command: a document for machines, or what `human` makes for people."""
        if self.as_json or human is None:
            print(json.dumps(document, indent=2, ensure_ascii=False, default=str))
            return
        shown = human()
        if shown is not None:
            self.out.print(shown)

    def take(self, items: Iterable[T], limit: int) -> list[T]:
        """The first `limit` (0: all) items of a list; says so if there are more."""
        walk = iter(items)
        if limit <= 0:
            return list(walk)
        found = list(islice(walk, limit))
        if len(found) == limit and next(walk, None) is not None:
            self.say(f"[dim]The first {limit} are shown; --limit 0 shows all.[/dim]")
        return found

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is destroyed."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise Wrong(f"{question} There is no terminal to ask; --yes answers.")
        self.err.print(f"{escape(question)} \\[y/N] ", end="")
        if input().strip().lower() not in ("y", "yes"):
            self.say("Nothing was changed.")
            raise typer.Exit(BAD_OUTCOME)

    @contextmanager
    def progress(self, text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar (a spinner without a total) on stderr while something takes its time."""
        columns = [SpinnerColumn(), TextColumn("{task.description}")]
        if total is not None:
            columns += [BarColumn(), MofNCompleteColumn()]
        quiet = not self.err.is_terminal
        with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True, disable=quiet) as bar:
            task = bar.add_task(escape(text), total=total)
            yield lambda done: bar.update(task, advance=done)


def documents(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Documents as they came, for `--json`."""
    return [item.raw for item in items]


# --- options of every command --------------------------------------------------------------
_SHARED: dict[str, Any] = {
    "as_json": (Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")], False),
    "profile": (
        Annotated[
            str | None, typer.Option("--profile", "-P", help="A profile of `clockhouse profile list`.")
        ],
        None,
    ),
    "api_url": (
        Annotated[
            str | None, typer.Option("--api-url", help="Another address; its key in CLOCKHOUSE_API_KEY.")
        ],
        None,
    ),
    "tenant": (Annotated[str | None, typer.Option("--tenant", help="Tenant id, for operators' keys.")], None),
}


def command(
    app: typer.Typer, name: str, **settings: Any
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a function as a command: its arguments behind the session are its options, the shared
    options are added, and errors end as README.md says."""

    def decorate(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        shared = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for option, (kind, default) in _SHARED.items()
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

        def run(**given: Any) -> None:
            session = Session(**{option: given.pop(option) for option in _SHARED})
            try:
                function(session, **given)  # type: ignore[call-arg]
            except (ClockhouseError, OSError, EOFError) as error:
                end_with(session, error)
            except KeyboardInterrupt:
                session.say("Interrupted.")
                raise typer.Exit(INTERRUPTED) from None
            finally:
                session.close()

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
        app.command(name, **settings)(run)
        return function

    return decorate


# --- errors --------------------------------------------------------------------------------
def end_with(session: Session, error: Exception) -> NoReturn:
    """Tell an error, and end with its status."""
    if isinstance(error, BrokenPipeError):  # `| head` has seen enough
        sys.stderr.close()
        raise typer.Exit(OK)
    if session.as_json:
        print(json.dumps(error_document(error), ensure_ascii=False), file=sys.stderr)
    else:
        session.err.print(f"[bold red]Error:[/bold red] {escape(first_line(error))}", soft_wrap=True)
        if isinstance(error, ApiError):
            for fault in error.faults:
                session.err.print(f"  {escape(str(fault))}", soft_wrap=True)
        # What a command knows to do next is a note of its error.
        for hint in (hint_of(error), *getattr(error, "__notes__", ())):
            if hint:
                session.err.print(f"[dim]{escape(hint)}[/dim]", soft_wrap=True)
    raise typer.Exit(status_of(error)) from None


def first_line(error: Exception) -> str:
    """What happened."""
    if isinstance(error, ApiError):
        return f"{error.detail} ({error.code})"
    return str(error) or type(error).__name__


def status_of(error: Exception) -> int:
    """The exit status that an error ends with."""
    if isinstance(error, (ServerError, TransportError)):
        return AWAY
    if isinstance(error, QuotaExceeded):
        return LIMITED
    if isinstance(error, ApiError):
        return _BY_STATUS.get(error.status, INVALID)
    return USAGE


def hint_of(error: Exception) -> str | None:
    """What to do next, where it is known."""
    match error:
        case ApiError(status=401):
            return "Is the key still good? `clockhouse login` stores another one."
        case ApiError(status=403):
            return "The key lacks a scope, or is another tenant's; `clockhouse keys list` shows scopes."
        case ApiError(code="TARGET_NOT_APPROVED"):
            return "`clockhouse targets approve <id>` allows it, with a key that may."
        case ApiError(code="TARGET_NOT_REGISTERED"):
            return "`clockhouse targets register <base url>` makes it known; then approve it."
        case ApiError(code="WORKFLOW_ID_IN_USE"):
            return (
                "`clockhouse workflows show <id>` tells what is open under it; another --id begins another."
            )
        case ApiError(code="NONDETERMINISTIC_DEFINITION_CHANGE"):
            return (
                "`clockhouse definitions check <file>` lists which open workflows could go on under a text."
            )
        case ApiError(status=412):
            return "Read it again and repeat the change on what is there now."
        case QuotaExceeded(retry_after=seconds) if seconds is not None:
            return f"Try again in {seconds:.0f} s."
        case ServerError(request_id=request_id) if request_id:
            return f"If it stays so, tell support this request: {request_id}."
        case TransportError() | ConfigurationError():
            return "`clockhouse profile show` tells which address and key are used."
    return None


def error_document(error: Exception) -> dict[str, Any]:
    """An error for machines."""
    if isinstance(error, ApiError):
        return {
            "error": {**error.document, "status": error.status, "code": error.code, "detail": error.detail}
        }
    return {"error": {"code": type(error).__name__, "detail": str(error)}}
