"""Dependencies point one way. The contracts are in pyproject.toml, under [tool.importlinter]."""

from __future__ import annotations

import contextlib
import io

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.architecture.sources import ROOT


def test_imports_keep_the_contracts() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, said.getvalue()
