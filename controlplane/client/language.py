"""How definitions of workflows are written: the one text that the terminal, the console and the README
point to (`workflow-language.md`)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_TEXT = Path(__file__).with_name("workflow-language.md")


@cache
def language() -> str:
    """The whole of it, in Markdown."""
    return _TEXT.read_text("utf-8")


def sample() -> str:
    """The definition it begins with, which needs nothing but the target `tgt_echo`."""
    found = re.search(r"```yaml\n(.*?)```", language(), re.DOTALL)
    if found is None:
        raise ValueError(f"{_TEXT} holds no definition")
    return found[1]
