"""`python -m controlplane.regions keep`: the keeper of one cell's site, until SIGTERM.
`python -m controlplane.regions setup`: makes the ownership store's tables, before any of the others.
`python -m controlplane.regions prepare [DATA]`: makes the site's folder ready, before its server starts.
`python -m controlplane.regions rejoin`: a site that went on alone follows the owner, once its tail was read.
"""

from __future__ import annotations

import logging.config
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cells.standby.folder import CannotPrepare, Folder
from controlplane.logs import logging_settings
from controlplane.ownership import OwnershipStore, installed
from controlplane.regions.keeper import Keeper
from controlplane.regions.pages import serving
from controlplane.regions.prepare import prepare
from controlplane.regions.settings import Settings, SettingsError

_USAGE = "usage: python -m controlplane.regions setup | keep | prepare [DATA] | rejoin"


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 it cannot be done now, 2 settings or command are none."""
    verb, *rest = arguments or [""]
    if verb not in ("keep", "prepare", "setup", "rejoin") or len(rest) > (verb == "prepare"):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return 2
    logging.config.dictConfig(logging_settings(os.environ.get("SITE_LOG_LEVEL", "INFO")))
    if verb == "setup":
        installed.prepare(settings.ownership_url)
        return 0
    store = installed.open_store(settings.ownership_url)
    try:
        if verb == "rejoin":
            return _rejoin(settings, store)
        if verb == "prepare":
            chosen = replace(settings, data=Path(rest[0])) if rest else settings
            prepare(chosen, store, sync=os.environ.get("SITE_NO_SYNC") != "1")
            return 0
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        keeper = Keeper(settings, store)
        with serving(
            keeper,
            cell=settings.cell,
            region=settings.region,
            host=settings.bind_host,
            port=settings.bind_port,
        ):
            keeper.run(stop)
    except CannotPrepare as fault:
        print(fault, file=sys.stderr)
        return 1
    finally:
        store.close()
    return 0


def _rejoin(settings: Settings, store: OwnershipStore) -> int:
    """Has a site that strayed become a standby of the owner. What only it did stays in its tail's file."""
    row = store.cell(settings.cell)
    if row is None or row.region == settings.region:
        print(f"{settings.region} follows nobody: there is no other owner", file=sys.stderr)
        return 1
    folder = Folder(settings.data, site=settings.region, binaries=settings.binaries)
    if not (settings.data.parent / f"tail-{row.epoch}.jsonl").exists():
        print("what only this site has was not read yet: its keeper does so first", file=sys.stderr)
        return 1
    folder.wish_to_rejoin(row.region, row.epoch)
    print(f"{settings.region} becomes a standby of {row.region}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
