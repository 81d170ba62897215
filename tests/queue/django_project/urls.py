from django.urls import path

from tests.queue.django_project.orders.views import order

urlpatterns = [path("orders/", order)]
