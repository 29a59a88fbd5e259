"""The console's addresses. Everything below `/t/<slug>/` belongs to one tenant."""

from django.urls import path, re_path

from controlplane.console import (
    activity,
    bulk,
    creating,
    dead_letters,
    editing,
    entry,
    events,
    explaining,
    herd_pages,
    job_actions,
    jobs,
    operations,
    overview,
    queues,
    runs,
    target_pages,
    targets,
    usage,
)
from controlplane.console.settings_urls import settings_patterns

app_name = "console"

_T = "t/<slug:slug>/"

urlpatterns = [
    path("", entry.choose, name="choose"),
    path(_T, overview.overview, name="overview"),
    path(_T + "live", overview.overview_live, name="overview-live"),
    path(_T + "activity", activity.activity, name="activity"),
    path(_T + "activity/live", activity.activity_live, name="activity-live"),
    path(_T + "events", events.event_list, name="events"),
    path(_T + "events/part", events.events_part, name="events-part"),
    path(_T + "herd", herd_pages.herd_map, name="herd"),
    path(_T + "herd/part", herd_pages.herd_part, name="herd-part"),
    path(_T + "jobs/", jobs.job_list, name="jobs"),
    path(_T + "jobs/new", creating.job_new, name="job-new"),
    path(_T + "jobs/preview", creating.job_preview, name="job-preview"),
    path(_T + "jobs/<str:job_id>/", jobs.job_detail, name="job"),
    path(_T + "jobs/<str:job_id>/live", jobs.job_live, name="job-live"),
    path(_T + "jobs/<str:job_id>/edit", editing.job_edit, name="job-edit"),
    path(_T + "jobs/<str:job_id>/why", explaining.job_why, name="job-why"),
    path(_T + "jobs/<str:job_id>/<slug:verb>", job_actions.job_action, name="job-action"),
    path(_T + "selections/", bulk.selection_new, name="selection-new"),
    path(_T + "selections/<str:selection_id>/", bulk.selection, name="selection"),
    path(_T + "operations/", operations.operation_list, name="operations"),
    path(_T + "operations/<str:operation_id>/", operations.operation, name="operation"),
    path(_T + "operations/<str:operation_id>/live", operations.operation_live, name="operation-live"),
    path(_T + "operations/<str:operation_id>/stop", operations.operation_stop, name="operation-stop"),
    path(_T + "runs/", runs.run_list, name="runs"),
    path(_T + "runs/<str:run_id>/", runs.run_detail, name="run"),
    path(_T + "runs/<str:run_id>/live", runs.run_live, name="run-live"),
    path(_T + "runs/<str:run_id>/cancel", runs.run_cancel, name="run-cancel"),
    path(_T + "runs/<str:run_id>/again", runs.run_again, name="run-again"),
    path(_T + "dlq/", dead_letters.dead_letters, name="dlq"),
    path(_T + "usage", usage.usage, name="usage"),
    path(_T + "targets/", targets.target_list, name="targets"),
    path(_T + "targets/new", targets.target_new, name="target-new"),
    path(_T + "targets/<str:target_id>/", target_pages.target_detail, name="target"),
    path(_T + "targets/<str:target_id>/live", target_pages.target_live, name="target-live"),
    path(_T + "targets/<str:target_id>/edit", targets.target_edit, name="target-edit"),
    path(_T + "targets/<str:target_id>/<slug:verb>", target_pages.target_action, name="target-action"),
    path(_T + "queues/", queues.queue_list, name="queues"),
    path(_T + "queues/live", queues.queues_live, name="queues-live"),
    path(_T + "queues/<str:queue>/", queues.queue_detail, name="queue"),
    path(_T + "queues/<str:queue>/live", queues.queue_live, name="queue-live"),
    path(_T + "queues/<str:queue>/<slug:verb>", queues.queue_action, name="queue-action"),
    *settings_patterns,
    # Last: what is none of the above may be one of them with another end.
    re_path(r"^t/(?P<slug>[a-z0-9-]+)/(?P<rest>.+)$", entry.other_slash),
    re_path(r"^(?P<rest>account|t/[a-z0-9-]+)$", entry.other_slash),
]
