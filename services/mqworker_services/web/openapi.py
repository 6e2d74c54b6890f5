"""The JSON API in the words of OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from mqworker import __version__
from mqworker.operate.actions import ACTIONS

# Any: what JSON can hold.
Document = dict[str, Any]

_QUEUE = ("queue", "Queue to look in; all of them without it.", False)
_ACTION = ("action", f"One of {', '.join(ACTIONS)}.", True)
_READS: dict[str, tuple[str, list[tuple[str, str, bool]]]] = {
    "/api/v1/system": ("Everything at a glance; the shape of `mqworker status --json`.", []),
    "/api/v1/queue": ("One queue, with its last minute.", [("name", "Name of the queue.", True)]),
    "/api/v1/job": (
        "One job: state, explanation, attempts and events.",
        [("id", "Id of the message.", True), _QUEUE],
    ),
    "/api/v1/search": (
        "Jobs that fit all words, in slices that say how far they looked.",
        [
            (
                "q",
                "state:dead queue:mail task:shop.charge id:01J error:Timeout age:>5m args.tenant:acme",
                False,
            ),
            ("cursor", "Where the slice before stopped.", False),
            ("limit", "How many at the most, up to 1,000.", False),
        ],
    ),
    "/api/v1/stats": (
        "Runs, failures, wait and run by task: p50, p95, p99 and the longest, ms.",
        [
            ("last", "15m, 1h, up to 1d.", False),
            _QUEUE,
            ("task", "Only tasks with this in their name.", False),
        ],
    ),
    "/api/v1/strikes": ("Calls that are skipped now.", []),
    "/api/v1/bulk": ("What was begun here, the newest first, and how far it has come.", []),
    "/api/v1/bulk/preview": (
        "How many jobs fit, and what would become of them. It changes nothing.",
        [
            ("action", "retry, drop or cancel.", True),
            ("q", "Words as for a search; not empty.", True),
            ("rate", "Jobs in a second at the most.", False),
        ],
    ),
    "/api/v1/dead": ("Dead letters by cause.", [_QUEUE]),
    "/api/v1/audit": ("What was done, the newest first.", [("limit", "How many, up to 1,000.", False)]),
    "/api/v1/schedules": (
        "A page of schedules: the one that fires next first, or by name with a prefix.",
        [
            ("prefix", "Only names that begin so, in the order of names.", False),
            ("after", "With a prefix: go on behind this name.", False),
            ("offset", "Pass over so many that fire sooner.", False),
            ("limit", "How many, up to 1,000.", False),
        ],
    ),
    "/api/v1/schedule": ("One schedule and its last firings.", [("name", "app/name of the schedule.", True)]),
    "/api/v1/workflows": ("The newest workflows that are still kept.", []),
    "/api/v1/workflow": ("One workflow with its members.", [("id", "Id of the workflow.", True)]),
    "/api/v1/limits": ("Rate limits and the shares of tenants.", []),
    "/api/v1/models": ("Queues that are not work queues, in the words of their models.", []),
    "/api/v1/gateways": ("The gateways of all nodes.", []),
    "/api/v1/accidents": (
        "Workers that died over what they ran, the newest first.",
        [("limit", "How many, up to 1,000.", False)],
    ),
    "/api/v1/tasks": ("Tasks that can be called by name: queue and parameters.", []),
    "/api/v1/actions/preview": (
        "What an action would do: count, effect and command. It changes nothing.",
        [_ACTION, ("queue", "Queue that is meant.", True), ("what", "Id of a message, or a cause.", False)],
    ),
}
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_WRITES: dict[str, tuple[str, Document, list[str]]] = {
    "post /api/v1/bulk": (
        "Retry, drop or cancel all jobs that fit; it goes on beside, and is written to the audit.",
        {"action": _TEXT, "words": _TEXT, "rate": _NUMBER, "before_ms": _NUMBER},
        ["action", "words"],
    ),
    "post /api/v1/bulk/stop": ("Stop one before its next step.", {"id": _TEXT}, ["id"]),
    "post /api/v1/dead/edit": (
        "Give a dead letter other arguments; it stays dead.",
        {"queue": _TEXT, "id": _TEXT, "args": {"type": "array"}, "kwargs": {"type": "object"}},
        ["queue", "id"],
    ),
    "post /api/v1/jobs/rerun": (
        "Run a job again that has ended: a dead one as it is; another, whose arguments are gone, with these.",
        {"queue": _TEXT, "id": _TEXT, "args": {"type": "array"}, "kwargs": {"type": "object"}},
        ["id"],
    ),
    "post /api/v1/strikes": (
        "Skip calls of a task, with certain arguments or tags, for a while.",
        {"task": _TEXT, "where": {"type": "array", "items": _TEXT}, "until": _TEXT, "reason": _TEXT},
        [],
    ),
    "delete /api/v1/strikes": ("Let those calls run again.", {"id": _TEXT}, ["id"]),
}
_STATUSES = {
    "400": "An argument is outside what is accepted.",
    "401": "A token is needed.",
    "404": "There is no such queue or job.",
    "503": "Redis is away.",
}


def openapi_document(root: str) -> Document:
    """The document, for a console that is mounted at `root`."""
    paths: Document = {path: {"get": _get(*told)} for path, told in _READS.items()}
    paths["/api/v1/actions"] = {"post": _act()}
    for path, (summary, fields, needed) in _WRITES.items():
        method, _, place = path.partition(" ")
        paths.setdefault(place, {})[method] = _write(summary, fields, needed)
    paths["/api/v1/tasks/{name}/enqueue"] = {"post": _enqueue()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mqworker console",
            "version": __version__,
            "description": "Instants are ms since 1970 UTC on the server's clock; what is not known is null.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _object({"error": {"type": "string"}})},
        },
    }


def _get(summary: str, parameters: list[tuple[str, str, bool]]) -> Document:
    return {
        "summary": summary,
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": is_required,
                "description": description,
                "schema": {"type": "integer" if name == "limit" else "string"},
            }
            for name, description, is_required in parameters
        ],
        "responses": {"200": _answer({"type": "object"}), **_errors()},
    }


def _act() -> Document:
    body = _object(
        {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "queue": {"type": "string"},
            "what": {
                "type": "string",
                "description": "Id of a message, or a cause; not for pause and resume.",
            },
        }
    )
    body["required"] = ["action", "queue"]
    return {
        "summary": "Do something; it is written to the audit. Repeated, it does what is left of it.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _answer(_object({"outcome": {"type": "string"}})),
            "403": {"description": "The role of the token may not do this."},
            "409": {"description": "It cannot be done any more."},
            **_errors(),
        },
    }


def _write(summary: str, fields: Document, needed: list[str]) -> Document:
    body = _object(fields) | {"required": needed}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "2XX": _answer({"type": "object"}),
            "403": {"description": "The role of the token may not do this."},
            "409": {"description": "It cannot be done any more."},
            **_errors(),
        },
    }


def _enqueue() -> Document:
    body = _object(
        {
            "args": {"type": "array", "items": {}},
            "kwargs": {"type": "object"},
            "delay": {"type": "number", "description": "Seconds from now."},
            "deadline": {"type": "number", "description": "Seconds from now; started later, it expires."},
            "priority": {"type": "integer", "minimum": 0, "maximum": 9},
            "id": {"type": "string", "description": "Chosen by the caller: sent twice, it is stored once."},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    stored = _object({"id": {"type": "string"}, "queue": {"type": "string"}, "is_new": {"type": "boolean"}})
    return {
        "summary": "Call a task by its name; the arguments are checked against what its workers published.",
        "parameters": [name],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _answer(stored) | {"description": "An equal call was stored before; this is its job."},
            "201": _answer(stored) | {"description": "Stored."},
            "403": {"description": "The role of the token may not do this."},
            "409": {"description": "Its queue is of another model."},
            **_errors(),
        },
    }


def _errors() -> Document:
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        status: {"description": text, "content": {"application/json": {"schema": schema}}}
        for status, text in _STATUSES.items()
    }


def _answer(schema: Document) -> Document:
    return {"description": "The answer.", "content": {"application/json": {"schema": schema}}}


def _object(properties: Document) -> Document:
    return {"type": "object", "properties": properties}
