"""Import rules: who may import whom, and which libraries are confined to which place.

Each rule takes a module and returns what is wrong with it, so that a rule can be tried on a made-up source.
"""

from tests.architecture.source_tree import Module

LAYERS = ("model", "store", "queues", "tasks", "operate", "actors", "supervisor", "cli")
SHARED = {"errors", "redaction", "log", "setting_rules", "settings"}
# What users may import; services and examples are users.
PUBLIC = {"errors", "events", "log", "operate", "queues", "redaction", "settings", "testing"}
SHARED_ACTOR_MODULES = {
    # how actors talk and live
    *("mail", "frame", "mailbox", "actor", "child_start", "wiring"),
    # what several of them use; none of these is an actor
    *(
        "cpu_wait",
        "early_start",
        "garbage",
        "node_file",
        "patrol",
        "queue_roster",
        "node_notice",
        "rounds",
        "run_slot",
        "silence",
        "wake_ups",
    ),
    *("wake_ups", "waker"),
}
# What an actor is made of beside its own module or package: (importing, imported).
PARTS_OF_ACTORS = {
    ("broker", "topic_fan_out"),
    ("heartbeat_reaper", "beat_thread"),
    ("recovery_scanner", "offload_sweep"),
    # Both serve gateways beside their own work.
    ("broker", "gateway"),
    ("dispatcher", "gateway"),
    # The dispatcher's side of it, kept beside the worker's.
    ("early_start", "dispatcher"),
}
# SKMQ keeps its messages in work queues.
MODELS_ON_MODELS = {("skmq", "work")}

CONFINED = {
    "redis": ("mqworker/store/",),
    "valkey": ("mqworker/store/",),
    "fakeredis": ("mqworker/testing/",),
    "multiprocessing": ("mqworker/actors/mailbox.py", "mqworker/supervisor/"),
    "opentelemetry": ("mqworker/tasks/tracing/", "mqworker/actors/exporter/otlp"),
    "s3fs": ("mqworker/tasks/offload/places.py",),
    "cryptography": ("mqworker/model/keyring.py",),
    "django": ("mqworker/contrib/django/",),
    "sentry_sdk": ("mqworker/contrib/sentry.py",),
    "grpc": ("services/mqworker_services/gateways/gomq/",),
    "pyspark": ("services/mqworker_services/pipeline/",),
    "sqlalchemy": ("mqworker/queues/gq/sql/", "mqworker/queues/gq/client.py", "mqworker/tasks/outbox/"),
    # Spark's launcher takes Java, Python and the address from the environment alone.
    # A probe must not wait for the settings to be imported, and wants one of them.
    "os.environ": (
        "mqworker/settings.py",
        "mqworker/cli/entry.py",
        # The plugin sets one of them, in every pytest run, and must not import the settings for it.
        "mqworker/testing/plugin.py",
        "services/mqworker_services/pipeline/launcher.py",
    ),
    "os.environb": ("mqworker/settings.py",),
    "os.getenv": ("mqworker/settings.py",),
    "os.getenvb": ("mqworker/settings.py",),
    "os.putenv": ("mqworker/settings.py",),
} | dict.fromkeys(
    [
        *(
            f"time.{name}{unit}"
            for name in ("time", "monotonic", "perf_counter", "clock_gettime")
            for unit in ("", "_ns")
        ),
        *("time.localtime", "time.gmtime", "time.ctime"),
        *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
        "datetime.date.today",
    ],
    ("mqworker/model/clock.py",),
)
FORBIDDEN = {"pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "yaml", "ruamel"}


def wrong_directions(module: Module) -> list[str]:
    """Imports that go against cli → supervisor → actors → operate → tasks → queues → store → model."""
    if module.path == "mqworker/__init__.py":
        return []
    place = module.parts[1]
    allowed = _may_import(place)
    return [
        f"{module.path}:{line}: {place} must not import {name}"
        for line, name in module.imports()
        if name.split(".")[0] == "mqworker" and _target(name) not in allowed
    ]


def private_uses(module: Module) -> list[str]:
    """Imports of services and examples beyond the public API."""
    return [
        f"{module.path}:{line}: {name} is not public"
        for line, name in module.imports()
        if name.split(".")[0] == "mqworker" and _target(name) not in PUBLIC | {""}
    ]


def sibling_imports(module: Module) -> list[str]:
    """Imports between two actors, or between two queue models."""
    place = ".".join(module.parts[:2])
    if place == "mqworker.actors":
        shared, allowed = SHARED_ACTOR_MODULES, PARTS_OF_ACTORS
    elif place == "mqworker.queues":
        shared, allowed = {"queue_model"}, MODELS_ON_MODELS
    else:
        return []
    own = module.parts[2]
    # The package and the catalogue exist to list all models.
    if own in {"__init__", "catalogue"}:
        return []
    siblings = ((line, name.split(".")[2]) for line, name in module.imports() if name.startswith(f"{place}."))
    return [
        f"{module.path}:{line}: {own} must not import its sibling {sibling}"
        for line, sibling in siblings
        if sibling != own and sibling not in shared and (own, sibling) not in allowed
    ]


def misplaced_uses(module: Module) -> list[str]:
    """Uses of a library, of the environment or of the time outside the one place for it."""
    return sorted(
        {
            f"{module.path}:{line}: {confined} belongs into {' or '.join(places)}"
            for line, name in module.uses()
            for confined, places in CONFINED.items()
            if (name == confined or name.startswith(f"{confined}.")) and not module.path.startswith(places)
        }
    )


def forbidden_imports(module: Module) -> list[str]:
    """Imports of anything that turns bytes into code."""
    return [
        f"{module.path}:{line}: never import {name}"
        for line, name in module.imports()
        if name.split(".")[0] in FORBIDDEN
    ]


def _may_import(place: str) -> set[str]:
    if place in LAYERS[1:]:
        # The command line shows the version, which stands in the public API.
        return {*LAYERS[: LAYERS.index(place) + 1], *SHARED, *({""} if place == "cli" else set())}
    if place in SHARED - {"errors"}:
        return SHARED | {"model"}
    return {
        "model": {"model", "errors"},
        # The public face of what gateways use of the actors.
        "gateway": {*LAYERS[: LAYERS.index("actors") + 1], *SHARED},
        "contrib": {"", *LAYERS[: LAYERS.index("actors")], *SHARED},
        "testing": {"testing", *LAYERS[: LAYERS.index("actors")], *SHARED},
        "events": {*LAYERS[: LAYERS.index("actors")], *SHARED},
        "__main__": {"cli"},
    }.get(place, set())


def _target(name: str) -> str:
    """The layer or shared module that an import of mqworker reaches; '' for the public API itself."""
    place = name.split(".")[1] if "." in name else ""
    return place if place in {*LAYERS, *SHARED, "testing"} else ""
