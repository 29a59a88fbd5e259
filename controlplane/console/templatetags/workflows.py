"""How templates show workflows."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.workflow_words import STATUSES

register = template.Library()

_SIGN = '<span class="state state-{}"><span class="sign" aria-hidden="true">{}</span>{}</span>'


@register.simple_tag
def flow_status(value: object) -> SafeString:
    """A workflow's status as a word with a sign."""
    word, look, sign = STATUSES.get(str(value), (str(value).replace("_", " ").capitalize(), "mute", "○"))
    return format_html(_SIGN, look, sign, word)


@register.simple_tag
def step_state(word: str, look: str, sign: str) -> SafeString | str:
    """A step's state as a word with a sign; nothing for groups."""
    return format_html(_SIGN, look, sign, word) if word else ""
