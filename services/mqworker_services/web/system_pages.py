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
from mqworker.operate.schedules import read_schedule, read_schedules
from mqworker.operate.workflows import read_workflow, read_workflows, workflow_summary
from mqworker.queues.work.accidents import read_accidents
from mqworker_services.web.console import Console
from mqworker_services.web.graph import draw


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
        """All schedules."""
        found = await asyncio.to_thread(read_schedules, self._console.system)
        return self._console.page(request, "schedules.html", found=found)

    async def schedule(self, request: Request) -> Response:
        """One schedule."""
        name = request.query_params.get("name", "")
        at_ms, view = await asyncio.to_thread(read_schedule, self._console.system, name)
        return self._console.page(request, "schedule.html", view=view, at_ms=at_ms)

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
