from django.urls import path

from . import views

urlpatterns = [
    path("token", views.token),
    path("orders", views.orders),
    path("orders/<int:number>/ship", views.ship),
]
