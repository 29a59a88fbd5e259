"""The language of workflow definitions as a page: the client's own text, drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import count, pairwise
from typing import Any

from django.http import HttpResponse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from cells.contract import Scope
from controlplane.client.language import language
from controlplane.console.visit import Visit, tenant_page


@tenant_page(Scope.WORKFLOWS_READ)
def definition_language(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/definition-language"""
    return visit.page("console/definitions/language.html", section="workflows", text=drawn())


class _Page(RendererHTML):
    """Markdown in the console's own shapes."""

    def __init__(self, parser: Any = None) -> None:
        super().__init__(parser)
        self._snippets = count(1)

    def table_open(self, *_: Any) -> str:
        return '<div class="table-wrap"><table class="table">'

    def table_close(self, *_: Any) -> str:
        return "</table></div>"

    def th_open(self, *_: Any) -> str:
        return '<th scope="col">'

    def code_inline(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        return f'<code class="wrap">{escape(tokens[idx].content)}</code>'

    def fence(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        name, text = f"snippet-{next(self._snippets)}", escape(tokens[idx].content)
        return (
            f'<div class="snippet"><pre id="{name}" tabindex="0"><code>{text}</code></pre>'
            f'<button class="quiet copy" type="button" data-copy="{name}">Copy</button></div>'
        )


@cache
def drawn() -> SafeString:
    """The text as HTML, without its title, which the page has. It is ours: nobody else writes into it."""
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Page).enable("table")
    tokens = parser.parse(language())[3:]
    columns: list[str] = []
    column = 0
    for opening, inside in pairwise(tokens):
        match opening.type:
            case "heading_open":
                opening.attrSet("id", re.sub(r"[^a-z]+", "-", inside.content.lower()).strip("-"))
            case "thead_open":
                columns = []
            case "th_open":
                columns.append(inside.content)
            case "tr_open":
                column = 0
            case "td_open":
                # A narrow screen has no heads over columns.
                opening.attrSet("data-label", columns[column])
                column += 1
    return mark_safe(parser.renderer.render(tokens, parser.options, {}))  # noqa: S308
