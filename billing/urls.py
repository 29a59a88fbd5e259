from django.urls import path

from billing import api

urlpatterns = [
    path("usage", api.UsageView.as_view()),
    path("cost-reports/daily", api.DailyCostView.as_view()),
]
