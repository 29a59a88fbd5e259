"""Being a process of a running installation's control plane, for proofs that call its functions."""

from __future__ import annotations

import os
from pathlib import Path

from tests.stack import Stack


def use_control_plane(stack: Stack, **settings: str) -> None:
    """Takes the settings that the supervisor gave Django, and `settings` (`CONTROL_…`) beside them."""
    raw = Path(f"/proc/{stack.pid('django')}/environ").read_bytes().decode()
    os.environ.update(
        entry.split("=", 1) for entry in raw.split("\0") if entry.startswith(("CONTROL_", "DJANGO_"))
    )
    os.environ.update(settings)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()


def stop_all_but_the_control_plane(stack: Stack) -> None:
    """Nothing but the proof counts, adds up, closes or bills: the router ships what it counted, later."""
    for name in [n for n in stack.info["processes"] if "celery" in n or "cell" in n or n == "router"]:
        stack.stop(name)
