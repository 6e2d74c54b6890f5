"""The guard in front of every page: it checks host, origin and identity, and adds what browsers obey."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqworker_services.web.access import COOKIE, Access, is_foreign
from mqworker_services.web.connections import KNOWN

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_OPEN_TO_ALL = ("/login", "/static/")
_FOR_PROGRAMS = ("/api/", "/live", "/metrics", "/scale/")
"""Who has no token is told so there, instead of being sent to a page."""


@dataclass(frozen=True, slots=True)
class Guard:
    """An ASGI app around the console."""

    app: ASGIApp
    access: Access
    hosts: frozenset[str]
    """Names under which it may be called, without port; empty: any, for who mounts it checks that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        is_static = scope["path"].removeprefix(scope.get("root_path", "")).startswith("/static/")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-cache" if is_static else "no-store")
            await send(message)

        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "")
        if self.hosts and _name_of(host) not in self.hosts:
            accepted = ", ".join(sorted(self.hosts))
            return PlainTextResponse(f"Host is not one of: {accepted}. --allow-host adds one.\n", 421)
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if is_foreign(method, fetch_site=site, origin=origin, host=host):
            return PlainTextResponse("a page of another site may not do this\n", 403)
        return self._identified(scope, headers)

    def _identified(self, scope: Scope, headers: Headers) -> Response | None:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        session = HTTPConnection(scope).cookies.get(COOKIE)
        is_bearer = kind.lower() == "bearer"
        identity = self.access.identify(
            bearer=bearer if is_bearer else None,
            session=session,
            now_s=asyncio.get_running_loop().time(),
        )
        if identity is None and self.access.proxy is not None:
            client = scope.get("client")
            identity = self.access.proxy.identity(client[0] if client else None, headers)
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        if identity is None and not path.startswith(_OPEN_TO_ALL):
            if path.startswith(_FOR_PROGRAMS):
                return JSONResponse({"error": "a token is needed: Authorization: Bearer <token>"}, 401)
            return RedirectResponse(f"{root}/login?back={quote(path)}", 303)
        state = scope.setdefault("state", {})
        state["identity"] = identity
        if identity is not None and KNOWN in state:
            state[KNOWN]()
        return None


def _name_of(host: str) -> str:
    """The host without its port; a bracketed address keeps its brackets."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    return name.lower()
