"""The system's Chromium: Playwright's own cannot be counted on to be downloadable."""

from __future__ import annotations

import shutil

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
)
MISSING = "Chromium is missing (apt-get install chromium)"


def chromium() -> str | None:
    """Its path, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")
