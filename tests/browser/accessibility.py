"""What axe-core finds on a page (https://github.com/dequelabs/axe-core, as the package carries it)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

#: What keeps people out or in their way. Lesser findings are written down, but fail nothing.
GRAVE = ("moderate", "serious", "critical")
_RUN = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations']});
  return found.violations.map(v => ({
    rule: v.id, impact: v.impact, help: v.help,
    places: v.nodes.slice(0, 5).map(n => ({at: n.target.join(' '), why: n.failureSummary}))
  }));
}"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A rule of axe that a page breaks, and where (at most five places)."""

    rule: str
    impact: str
    help: str
    places: tuple[Mapping[str, str], ...]

    def __str__(self) -> str:
        places = "; ".join(f"{p['at']} ({' '.join(p['why'].split())})" for p in self.places)
        return f"{self.impact} {self.rule}: {places}"


@functools.cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text()


def findings(page: Page) -> list[Finding]:
    """Everything axe says about the page as it is now."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(_axe())
    found: list[dict[str, Any]] = page.evaluate(_RUN)
    return [Finding(**{**one, "places": tuple(one["places"])}) for one in found]
