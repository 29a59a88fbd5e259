"""The API's requests about definitions of workflows. Pure, like `calls.py`. A definition is sent as the text
it is, YAML or JSON: its lines are what faults name."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence

from controlplane.client.decoding import decode
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Answer, Call, path, query
from controlplane.client.workflow_documents import DefinitionChecked, WorkflowDefinition

# What stands at the beginning of a line is a member of the document itself.
_MEMBER = r"^(?:{name}|\"{name}\"|'{name}')[ \t]*:[ \t]*(?P<value>[^#\r\n]*)"


def named_in(text: str, member: str) -> str | None:
    """A member of a definition's text (YAML in blocks, or JSON) that is one word; None if it is not said so.
    The server reads the text itself, and refuses one that says otherwise."""
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except ValueError:
            return None
        value = document.get(member) if isinstance(document, dict) else None
        return None if value is None else str(value)
    found = re.search(_MEMBER.format(name=member), text, re.MULTILINE)
    return (found["value"].strip().strip("\"'") or None) if found else None


def _version(name: str, version: int) -> str:
    return path("/v1/workflow-definitions/{name}/versions/{version}", name=name, version=str(version))


def put_definition(name: str, version: int, text: str) -> Call[WorkflowDefinition]:
    """Register a version. A version never changes: the same text again is answered as before, another one
    is a `Conflict`; a text that is not accepted is `Invalid`, with every fault and its line."""
    return Call(method="PUT", path=_version(name, version), read=_read_put, text=text)


def _read_put(answer: Answer) -> WorkflowDefinition:
    return dataclasses.replace(decode(WorkflowDefinition, answer.document()), created=answer.status == 201)


def check_definition(
    name: str,
    version: int,
    text: str | None = None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[DefinitionChecked]:
    """Replay open executions of that name against a text, or against the registered version where none is
    given: which could go on under it, and which could not. A page of them; the same text with its
    `next_cursor` goes on. Nothing is changed."""
    return Call(
        method="POST",
        path=_version(name, version) + ":check",
        read=reads(DefinitionChecked),
        text=text,
        query=query(limit=limit, cursor=cursor),
        repeatable=True,
    )


def whole(pages: Sequence[DefinitionChecked]) -> DefinitionChecked:
    """Pages that follow each other, as one; the document of it has all of their members."""
    first, last = pages[0], pages[-1]
    lists = {
        name: [one for page in pages for one in page.raw.get(name, ())]
        for name in ("compatible", "blocked", "undecided")
    }
    looked_at = sum(page.looked_at for page in pages)
    told = {"more": last.more, "next_cursor": last.next_cursor, "looked_at": looked_at}
    return decode(DefinitionChecked, {**first.raw, **lists, **told})


def get_definition(name: str, version: int | None = None) -> Call[WorkflowDefinition]:
    """A version with its text; the newest one if none is named."""
    newest = path("/v1/workflow-definitions/{name}", name=name)
    return Call(
        method="GET",
        path=newest if version is None else _version(name, version),
        read=reads(WorkflowDefinition),
    )


def list_definitions(
    *, name: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[WorkflowDefinition]]:
    """Versions by name, the newest first, without their texts; of one name if given."""
    return Call(
        method="GET",
        path="/v1/workflow-definitions",
        read=reads_page(WorkflowDefinition),
        query=query(name=name, limit=limit, cursor=cursor),
    )
