"""`make openapi`: writes the API's OpenAPI document, which the router serves, from the code.

Both parts print theirs in processes of their own, as neither may import the other.
"""

from __future__ import annotations

import os
import subprocess
import sys

from deploy.home import ROOT

DOCUMENT = ROOT / "controlplane" / "routing" / "openapi.json"
#: Django's settings must be readable; nothing they name is asked.
_NOBODY = {
    "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    "CONTROL_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "CONTROL_OWNERSHIP_URL": "postgresql://nobody@127.0.0.1:1/none",
    "CONTROL_VALKEY_URL": "redis://127.0.0.1:1/0",
    "CONTROL_SECRET_KEY": "0" * 64,
    "CONTROL_INSTALLATION_KEY": "0" * 64,
    "CONTROL_ROUTER_KEY": "0" * 64,
    "CONTROL_EMAIL_URL": "file:///nowhere",  # nothing is sent
}


def generate() -> bytes:
    """The document as the code of now describes itself."""
    cells = _printed(["-m", "cells.api.openapi"], b"")
    return _printed(["manage.py", "merge_openapi"], cells)


def _printed(arguments: list[str], given: bytes) -> bytes:
    environment = {**os.environ, **_NOBODY}
    return subprocess.run(
        [sys.executable, *arguments],
        input=given,
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        env=environment,
    ).stdout


def main() -> None:
    """Write it; nothing is left half written when a part fails."""
    DOCUMENT.write_bytes(generate())


if __name__ == "__main__":
    main()
