from django.urls import path

from billing import api, usage_api

urlpatterns = [
    path("usage", usage_api.UsageView.as_view()),
    path("cost-reports/daily", api.DailyCostView.as_view()),
]
