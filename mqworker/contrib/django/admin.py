"""The console among the pages of Django's admin: a link to where `mqworker web` serves it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect

from mqworker.contrib.django.models import Console
from mqworker.contrib.django.project import console_url


class ConsoleAdmin(admin.ModelAdmin):
    """One page, which leads elsewhere; there is nothing to add, to change or to delete."""

    # Any: Django has no types.
    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:  # noqa: ANN401, ARG002
        """To the console, for those who may see it."""
        url = console_url()
        if url is None or not self.has_view_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(url)

    def has_add_permission(self, request: Any) -> bool:  # noqa: ANN401, ARG002
        """Nobody."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ANN401, ARG002
        """Nobody."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ANN401, ARG002
        """Nobody."""
        return False


if console_url() is not None:
    admin.site.register(Console, ConsoleAdmin)
