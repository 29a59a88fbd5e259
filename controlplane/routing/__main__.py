"""`python -m controlplane.routing`"""

from __future__ import annotations

import logging.config
import os
import sys

import uvloop

from controlplane.logs import logging_settings
from controlplane.routing.disk import FolderInUse
from controlplane.routing.process import serve
from controlplane.routing.settings import BadSettings, from_environment


def main() -> int:
    """Run the router; the exit code."""
    try:
        settings = from_environment(os.environ)
        logging.config.dictConfig(logging_settings(settings.log_level))
        uvloop.run(serve(settings))
    except (BadSettings, FolderInUse) as fault:
        print(f"router: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
