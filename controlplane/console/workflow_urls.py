"""Addresses of workflows and their definitions. What is no workflow or definition has a word of its own: any
word may be an id."""

from django.urls import path

from controlplane.console import definitions, language, workflow_acts, workflows

_T = "t/<slug:slug>/"

workflow_patterns = [
    path(_T + "workflow-new", workflow_acts.workflow_new, name="workflow-new"),
    path(_T + "workflow-reconciliation", workflows.reconciliation, name="workflow-reconciliation"),
    path(_T + "workflows/", workflows.workflow_list, name="workflows"),
    path(_T + "workflows/<str:workflow_id>/", workflows.workflow_detail, name="workflow"),
    path(_T + "workflows/<str:workflow_id>/live", workflows.workflow_live, name="workflow-live"),
    path(_T + "workflows/<str:workflow_id>/history", workflows.workflow_history, name="workflow-history"),
    path(_T + "workflows/<str:workflow_id>/<slug:verb>", workflow_acts.workflow_act, name="workflow-act"),
    path(_T + "definition-new", definitions.definition_new, name="definition-new"),
    path(_T + "definition-language", language.definition_language, name="definition-language"),
    path(_T + "definitions/", definitions.definition_list, name="definitions"),
    path(_T + "definitions/<str:name>/", definitions.definition, name="definition"),
]
