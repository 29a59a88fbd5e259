from django.urls import path

from billing import api

urlpatterns = [path("cost-reports/daily", api.AllDailyCostView.as_view())]
