"""PostgreSQL of a cell that has sites in several regions: settings, and clusters that begin as a copy.

Whether a cluster starts as primary, as standby or fenced is not decided here: before every start a
command of the product's looks at the folder and says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy import children
from deploy.children import CannotStart, Identity
from deploy.engines import Postgres

#: What each site's cluster runs with beside `POSTGRES_SETTINGS`. All of a cell's have the same: a standby
#: must have at least its primary's limits.
SITE_SETTINGS: Mapping[str, str] = {
    # A commit waits for its own site; a transaction that wants a standby's flush says so itself.
    "synchronous_commit": "local",
    # Standbys keep this much for each other, and slots hold this much for a site that is away.
    "wal_keep_size": "512MB",
    "max_slot_wal_keep_size": "4GB",
    "hot_standby": "on",
    "wal_retrieve_retry_interval": "500ms",
    "wal_receiver_timeout": "10s",
    "wal_sender_timeout": "10s",
    "max_standby_streaming_delay": "5s",
    # What a session left open by a dead machine holds is let go of.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class SitePostgres(Postgres):
    """One site's cluster. `make_ready` runs before every start and is given the data folder as last
    argument; what it writes belongs to the owner of the folder around that. Only a `founding` site makes
    a cluster from nothing."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        password: str,
        name: str,
        settings: Mapping[str, str],
        founding: bool,
        make_ready: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(folder, port=port, password=password, name=name, settings=settings)
        self._founding = founding
        self._make_ready = list(make_ready)
        self._environment = dict(environment)

    def _make(self, identity: Identity) -> None:
        if self._founding:
            super()._make(identity)

    def prepare(self) -> None:
        """See `Postgres.prepare`; then the command says how it shall start. `CannotStart` while it cannot."""
        super().prepare()
        if self._identity is None:
            raise CannotStart(f"{self.name} has no identity")
        # Copies are made beside the data folder and renamed.
        os.chown(self._folder, *children.owner_of_files(self._identity))
        children.run([*self._make_ready, str(self._data)], Identity.SELF, env=self._environment)
