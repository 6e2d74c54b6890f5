"""Pages about the system: schedules, workflows, limits and fairness, queue models, gateways, accidents."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqworker.errors import StoreUnavailable
from mqworker.operate.gateway_figures import gateway_views
from mqworker.operate.limits import read_limits
from mqworker.operate.models import read_models
from mqworker.operate.picture import SystemView
from mqworker.operate.schedules import PAGE, read_history, read_schedule, read_schedules, told_firing
from mqworker.operate.workflows import read_workflow, read_workflows, workflow_summary
from mqworker.queues.work.accidents import read_accidents
from mqworker_services.web.console import Console
from mqworker_services.web.graph import draw

_LONGEST_NUMBER = 10


class SystemPages:
    """The pages of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pages = {
            "/schedules": self.schedules,
            "/schedule": self.schedule,
            "/workflows": self.workflows,
            "/workflow": self.workflow,
            "/limits": self.limits,
            "/models": self.models,
            "/gateways": self.gateways,
            "/accidents": self.accidents,
        }
        console.live_pages |= self._pages

    @property
    def routes(self) -> list[Route]:
        """Where each page is."""
        return [Route(path, page) for path, page in self._pages.items()]

    async def schedules(self, request: Request) -> Response:
        """A page of schedules: the one that fires next first, or by name where a prefix is asked for."""
        asked = request.query_params
        found = await asyncio.to_thread(
            read_schedules,
            self._console.system,
            prefix=asked.get("prefix", ""),
            after=asked.get("after", ""),
            offset=_whole(asked.get("offset", "")),
            limit=PAGE,
        )
        return self._console.page(request, "schedules.html", found=found, page=PAGE)

    async def schedule(self, request: Request) -> Response:
        """One schedule."""
        name = request.query_params.get("name", "")
        at_ms, view = await asyncio.to_thread(read_schedule, self._console.system, name)
        firings = await asyncio.to_thread(read_history, self._console.system, view.name)
        history = [(firing, told_firing(firing)) for firing in firings]
        return self._console.page(request, "schedule.html", view=view, at_ms=at_ms, history=history)

    async def workflows(self, request: Request) -> Response:
        """The newest workflows."""
        found = await asyncio.to_thread(read_workflows, self._console.system)
        return self._console.page(request, "workflows.html", found=found)

    async def workflow(self, request: Request) -> Response:
        """One workflow as a graph."""
        view = await asyncio.to_thread(
            read_workflow, self._console.system, request.query_params.get("id", "")
        )
        return self._console.page(
            request, "workflow.html", view=view, drawing=draw(view.nodes), summary=workflow_summary(view)
        )

    async def limits(self, request: Request) -> Response:
        """Limits and fairness as instruments."""
        found = await asyncio.to_thread(read_limits, self._console.system)
        return self._console.page(request, "limits.html", found=found)

    async def models(self, request: Request) -> Response:
        """The five queue models, each in its own words."""
        view = await self._view()
        found = await asyncio.to_thread(read_models, self._console.system, view)
        return self._console.page(request, "models.html", found=found, view=view)

    async def gateways(self, request: Request) -> Response:
        """Who comes in by another protocol."""
        view = await self._view()
        return self._console.page(request, "gateways.html", gateways=gateway_views(view.nodes))

    async def accidents(self, request: Request) -> Response:
        """Workers that died over what they ran."""
        system = self._console.system
        found = await asyncio.to_thread(read_accidents, system.store, system.settings.namespace)
        return self._console.page(request, "accidents.html", found=found)

    async def _view(self) -> SystemView:
        moment = await self._console.gallery.current()
        if moment.trouble is not None or moment.picture is None:
            raise StoreUnavailable(moment.trouble or "nothing was read yet")
        return moment.picture.view


def _whole(text: str) -> int:
    """What stands in an address was typed by anybody: a number, or the beginning."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else 0
