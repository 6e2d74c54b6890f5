"""The Django application that stands in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class MqworkerConfig(AppConfig):
    """Brings the management command and the admin's link to the console; the backend works without it."""

    name = "mqworker.contrib.django"
    label = "mqworker"
    verbose_name = "mqworker"
    default_auto_field = "django.db.models.BigAutoField"
