from django.urls import path

from controlplane.internal import moves, views

urlpatterns = [
    path("routing/snapshot", views.routing_snapshot),
    path("routing/changes", views.routing_changes),
    path("routing/used", views.routing_used),
    path("meters", views.meters),
    path("moves/settle", moves.settle),
    path("operator-acts", views.operator_acts),
]
