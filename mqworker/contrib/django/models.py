"""No tables: a name for the console, so that the admin can show it and permissions can name it."""

from __future__ import annotations

from django.db import models


class Console(models.Model):
    """The console. Whoever has the permission `mqworker.view_console` sees the link in the admin."""

    class Meta:
        """Nothing is stored."""

        managed = False
        default_permissions = ("view",)
        verbose_name = "console"
        verbose_name_plural = "console"

    def __str__(self) -> str:
        """There is one."""
        return "console"
