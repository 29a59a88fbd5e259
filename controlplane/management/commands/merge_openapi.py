"""`manage.py merge_openapi < cells.json`: prints the OpenAPI document of the whole API.

Reads the cells' document (`python -m cells.api.openapi`) from standard input. Needs no database.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.api.document import management_document, text_of
from controlplane.api.merging import merge


class Command(BaseCommand):
    help = "Merge the cells' OpenAPI document with the management API's."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(
            text_of(merge(cells=json.load(sys.stdin), management=management_document())), ending=""
        )
