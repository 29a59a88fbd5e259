"""Every template of ours can be compiled: a filter that it did not load is found here, not by people."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.template import engines

ROOT = Path(__file__).parents[4] / "controlplane"
TEMPLATES = sorted(
    file.relative_to(folder).as_posix()
    for folder in ROOT.glob("*/templates")
    for file in folder.rglob("*.html")
)


def test_there_are_templates() -> None:
    assert "console/jobs/list.html" in TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_compiles(name: str) -> None:
    engines["django"].get_template(name)
