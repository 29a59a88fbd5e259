"""`python -m controlplane.regions keep`: the keeper of one cell's site, until SIGTERM. Beside it:

`setup`: makes the ownership store's tables, before any of the others.
`prepare [DATA]`: makes the site's folder ready, before its server starts.
`hand-over --to REGION`: the owner's site: another region becomes the owner, with nothing lost.
`rejoin`: a site that went on alone follows the owner; its tail was read before.
`override --reason WHY`: a takeover goes on without the votes that are missing, and loses what only they have.
`give-up --site REGION --reason WHY`: the owner's site: STRICT waits no more for a site that was passed over.
"""

from __future__ import annotations

import argparse
import logging.config
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cells.standby.folder import CannotPrepare
from controlplane.logs import logging_settings
from controlplane.ownership import OwnershipStore, installed
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.regions.keeper import Keeper
from controlplane.regions.pages import serving
from controlplane.regions.prepare import prepare
from controlplane.regions.settings import Settings, SettingsError
from controlplane.regions.wishes import Refused, give_up, hand_over, missing_votes, override, rejoin


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane.regions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("keep")
    verbs.add_parser("setup")
    verbs.add_parser("prepare").add_argument("data", nargs="?", type=Path)
    verbs.add_parser("hand-over").add_argument("--to", required=True, metavar="REGION")
    verbs.add_parser("rejoin")
    verbs.add_parser("override").add_argument("--reason", required=True)
    gives_up = verbs.add_parser("give-up")
    gives_up.add_argument("--site", required=True, metavar="REGION")
    gives_up.add_argument("--reason", required=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 it cannot be done now, 2 settings or command are none."""
    chosen = _parser().parse_args(arguments)
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return 2
    logging.config.dictConfig(logging_settings(os.environ.get("SITE_LOG_LEVEL", "INFO")))
    if chosen.verb == "setup":
        installed.prepare(settings.ownership_url)
        return 0
    store = installed.open_store(settings.ownership_url)
    try:
        _do(chosen, settings, store)
    except (CannotPrepare, Refused, OwnershipUnavailable) as fault:
        print(fault, file=sys.stderr)
        return 1
    finally:
        store.close()
    return 0


def _do(chosen: argparse.Namespace, settings: Settings, store: OwnershipStore) -> None:
    match chosen.verb:
        case "prepare":
            here = replace(settings, data=chosen.data) if chosen.data is not None else settings
            prepare(here, store, sync=os.environ.get("SITE_NO_SYNC") != "1")
        case "hand-over":
            print(hand_over(settings, store.cell(settings.cell), to=chosen.to))
        case "rejoin":
            print(rejoin(settings, store.cell(settings.cell)))
        case "override":
            print(_overridden(settings, store, chosen.reason))
        case "give-up":
            print(give_up(settings, store.cell(settings.cell), site=chosen.site, reason=chosen.reason))
        case _:
            _keep(settings, store)


def _overridden(settings: Settings, store: OwnershipStore, reason: str) -> str:
    """Waits for a lease first, as votes come within moments where they come at all."""
    row = store.cell(settings.cell)
    missing = ", ".join(missing_votes(settings, store, row))
    print(f"waits {settings.timing.lease:g} s for the votes of {missing}", file=sys.stderr)
    time.sleep(settings.timing.lease)
    return override(settings, store, row, reason=reason, waited=settings.timing.lease)


def _keep(settings: Settings, store: OwnershipStore) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    keeper = Keeper(settings, store)
    with serving(keeper, settings):
        keeper.run(stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
