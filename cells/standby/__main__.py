"""`python -m cells.standby clone|rejoin|fence|unfence`: a site's cluster before its server starts.

Run as the user that owns the folder, or as root. `SITE_PRIMARY_URL` is the primary to copy from or to follow.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cells.standby.folder import CannotPrepare, Folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 it could not be done, 2 the command is not one."""
    parser = argparse.ArgumentParser(prog="python -m cells.standby", description=__doc__)
    parser.add_argument("verb", choices=["clone", "rejoin", "fence", "unfence"])
    parser.add_argument("--data", type=Path, required=True, help="the cluster's data folder")
    parser.add_argument("--binaries", type=Path, required=True, help="PostgreSQL's own programs")
    parser.add_argument("--site", required=True, help="the name of this site")
    parser.add_argument("--primary", default="", help="the name of the primary's site")
    parser.add_argument("--epoch", type=int, default=0, help="the epoch it is the primary under")
    parser.add_argument("--no-sync", action="store_true", help="for tests: nothing is flushed")
    chosen = parser.parse_args(arguments)
    url = os.environ.get("SITE_PRIMARY_URL", "")
    if chosen.verb in ("clone", "rejoin") and not (url and chosen.primary and chosen.epoch > 0):
        parser.error(f"{chosen.verb} needs SITE_PRIMARY_URL, --primary and --epoch")
    folder = Folder(chosen.data, site=chosen.site, binaries=chosen.binaries)
    try:
        match chosen.verb:
            case "fence":
                folder.fence()
            case "unfence":
                folder.unfence()
            case "clone":
                folder.clone(url, primary=chosen.primary, epoch=chosen.epoch, sync=not chosen.no_sync)
            case _:
                done = folder.rejoin(url, primary=chosen.primary, epoch=chosen.epoch, sync=not chosen.no_sync)
                print(done)
    except (CannotPrepare, OSError) as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
