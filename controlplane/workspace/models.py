"""Tables of a tenant's schema. Nothing here is ever asked across tenants, and nothing refers
to a shared table: people and jobs are named by id, as text.

Migrations of this app hold schema operations with named constraints only (no Python): they
are turned into plain SQL once and run for each schema; see `migrator.py`.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class WorkspaceSettings(models.Model):
    """How the console looks to a tenant's people. One row, made with the schema."""

    singleton = models.BooleanField(primary_key=True, default=True, db_default=True)
    timezone = models.CharField(max_length=64, default="UTC", db_default="UTC")
    week_starts_on = models.SmallIntegerField(default=1, db_default=1)  # ISO: 1 is Monday
    landing_page = models.CharField(max_length=40, default="overview", db_default="overview")
    display_name = models.CharField(max_length=120, blank=True, default="", db_default="")
    theme = models.CharField(max_length=8, default="auto", db_default="auto")
    updated_at = models.DateTimeField(auto_now=True, db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(singleton=True), name="workspace_settings_singleton"),
            models.CheckConstraint(
                condition=models.Q(week_starts_on__range=(1, 7)), name="workspace_week_starts_on_a_day"
            ),
        ]

    def __str__(self) -> str:
        return "settings"


class SavedView(models.Model):
    """A list with filters that somebody wants to find again."""

    name = models.CharField(max_length=80)
    page = models.CharField(max_length=40)  # `jobs`, `runs`, `dlq`
    query = models.CharField(max_length=1000, blank=True)  # the URL's query string
    shared = models.BooleanField(default=False)
    owner = models.CharField(max_length=80)  # `user:<uuid>`
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "page", "name"], name="saved_view_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class Tag(models.Model):
    """The tenant's vocabulary of tags, with a colour."""

    name = models.CharField(max_length=64, unique=True)
    colour = models.CharField(max_length=20, blank=True)
    description = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return self.name


class Note(models.Model):
    """What people want to remember about a job, run or target."""

    subject = models.CharField(max_length=200)  # public id of what it is about
    text = models.TextField(max_length=4000)
    author = models.CharField(max_length=80)
    created_at = models.DateTimeField(db_default=Now())
    edited_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["subject", "created_at"], name="note_by_subject")]

    def __str__(self) -> str:
        return self.text[:40]


class ActivityItem(models.Model):
    """What happened, for the tenant's people: the console's own acts in plain words."""

    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=200)
    verb = models.CharField(max_length=80)
    subject = models.CharField(max_length=200, blank=True)
    summary = models.CharField(max_length=300)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["-at", "-id"], name="activity_newest")]

    def __str__(self) -> str:
        return self.summary
