"""Writes the workspace's template from its migrations: run it after adding one."""

from typing import Any

from django.core.management.base import BaseCommand

from controlplane.workspace.template import TEMPLATE, render


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        TEMPLATE.write_text(render())
        self.stdout.write(f"{TEMPLATE} written")
