"""Reading a Celery project by its source alone: nothing of it is imported, and Celery need not be there."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqworker.cli.migrate.findings import CALLS, SIGNALS, Finding, Verdict, option_finding, setting_finding
from mqworker.errors import InvalidArgument
from mqworker.model.names import shown

MOST_FILES = 20_000
LARGEST_FILE_BYTES = 2_000_000
_LEFT_OUT = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist"})
_CONF = "conf"
_DJANGO = "CELERY_"


@dataclass(slots=True)
class Survey:
    """What was found, and what could not be read."""

    findings: list[Finding] = field(default_factory=list)
    tasks: list[tuple[str, int, str]] = field(default_factory=list)
    """Path, line and name of each task."""
    unread: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0


def survey(root: Path, target: str) -> Survey:
    """Read all source below a folder; `target` names the app as Celery's `-A` does, `proj.celery:app`."""
    module, _, name = target.partition(":")
    _check_target(root, target, module, name or "app")
    found = Survey()
    for path in sorted(_sources(root)):
        found.files += 1
        shown_path = str(path.relative_to(root))
        try:
            tree = ast.parse(path.read_bytes(), shown_path)
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            found.unread.append((shown_path, str(error)))
            continue
        if _may_be_celerys(tree, path):
            _Reader(found, shown_path, _module_of(path, root)).visit(tree)
    found.findings.sort()
    return found


def _check_target(root: Path, target: str, module: str, name: str) -> None:
    path = root.joinpath(*module.split("."))
    candidates = [path.with_suffix(".py"), path / "__init__.py", (path / "celery").with_suffix(".py")]
    files = [each for each in candidates if each.is_file()]
    if not module or not files:
        raise InvalidArgument(
            f"APP is {shown(target)}, and {root} has no {candidates[0].relative_to(root)}; accepted is the "
            "app of Celery as its own -A takes it, proj.celery:app, seen from --directory"
        )
    texts = [each.read_text(errors="replace") for each in files]
    if not any(name in text for text in texts):
        raise InvalidArgument(f"APP is {shown(target)}, and {files[0].relative_to(root)} has no {name}")


def _sources(root: Path) -> Iterator[Path]:
    count = 0
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = [
            each
            for each in names
            if not each.startswith(".")
            and each not in _LEFT_OUT
            and not (here / each / "pyvenv.cfg").exists()
        ]
        for each in files:
            path = here / each
            if path.suffix != ".py" or path.stat().st_size > LARGEST_FILE_BYTES:
                continue
            count += 1
            if count > MOST_FILES:
                raise InvalidArgument(
                    f"{root} has more than {MOST_FILES:,} files of Python; give a smaller --directory"
                )
            yield path


def _module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _may_be_celerys(tree: ast.Module, path: Path) -> bool:
    """Whether it imports Celery, calls a task, or holds settings: others have a `retry`, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name.split(".")[0] == "celery" for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("celery", "kombu"):
            return True
        if isinstance(node, ast.ImportFrom) and any(
            each.name in ("app", "celery_app") for each in node.names
        ):
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("delay", "apply_async", "send_task"):
            return True
    return "settings" in path.name or "settings" in path.parent.name or "celeryconfig" in path.name


class _Reader(ast.NodeVisitor):
    """Walks one file."""

    def __init__(self, found: Survey, path: str, module: str) -> None:
        self._found = found
        self._path = path
        self._module = module
        self._bound: list[str] = []
        """The first parameters of bound tasks around here: `self` is the task there."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function, a task perhaps."""
        self._read_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """The same."""
        self._read_function(node)

    def _read_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        is_bound = False
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = _dotted(call.func if call is not None else decorator)
            if name is None or not _is_task_decorator(name):
                self._note_signal(node, decorator)
                continue
            options = {} if call is None else {each.arg: each.value for each in call.keywords if each.arg}
            self._note_task(node, options)
            is_bound = is_bound or _constant(options.get("bind")) is True
        first = [each.arg for each in node.args.args[:1]]
        self._bound.append(first[0] if is_bound and first else "")
        self.generic_visit(node)
        self._bound.pop()

    def _note_task(self, node: ast.FunctionDef | ast.AsyncFunctionDef, options: dict[str, ast.expr]) -> None:
        named = _constant(options.get("name"))
        name = named if isinstance(named, str) else f"{self._module}.{node.name}"
        self._found.tasks.append((self._path, node.lineno, name))
        for option, value in options.items():
            self._found.findings.append(option_finding(self._path, value.lineno, option))

    def _note_signal(self, node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr) -> None:
        name = _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        signal = name.removesuffix(".connect").rpartition(".")[2]
        if name.endswith(".connect") and signal in SIGNALS:
            self._note(node.lineno, f"{signal}.connect", *SIGNALS[signal])

    def visit_Call(self, node: ast.Call) -> None:
        """A call of something that Celery has."""
        name = _dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        last = name.rpartition(".")[2]
        if name.endswith((f"{_CONF}.update", "Celery")):
            for keyword in node.keywords:
                self._note_setting(
                    keyword.value.lineno,
                    {"broker": "broker_url", "backend": "result_backend"}.get(
                        keyword.arg or "", keyword.arg or ""
                    ),
                    keyword.value,
                )
        elif last == "config_from_object":
            self._note(node.lineno, last, Verdict.MAPS, "settings: those that are listed with their places")
        elif last in CALLS and (last not in _ONLY_OF_A_TASK or self._is_of_task(name)):
            self._note(node.lineno, last, *CALLS[last])
            self._note_keywords(node, last)
        self.generic_visit(node)

    def _note_keywords(self, node: ast.Call, last: str) -> None:
        if last not in ("apply_async", "send_task"):
            return
        for keyword in node.keywords:
            if keyword.arg in ("link", "link_error"):
                self._note(
                    node.lineno, keyword.arg, Verdict.MAPS, "carried on in a Celery queue; here: chain(...)"
                )
            if keyword.arg == "serializer" and _constant(keyword.value) not in ("json", "msgpack"):
                self._note(
                    node.lineno, "serializer", Verdict.NOT, "only JSON and msgpack are read; others are kept"
                )

    def _is_of_task(self, name: str) -> bool:
        return name.partition(".")[0] in {each for each in self._bound if each}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`self.request` in a bound task."""
        name = _dotted(node)
        if name is not None and node.attr == "request" and self._is_of_task(name):
            self._note(
                node.lineno, name, Verdict.MAPS, "ctx: Context has id, attempt, failures, headers, queue"
            )
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """`app.conf.x = y`, `CELERY_X = y`, and `x = y` in a celeryconfig."""
        for target in node.targets:
            name = _dotted(target) or ""
            before, _, last = name.rpartition(".")
            if before.rpartition(".")[2] == _CONF:
                self._note_setting(node.lineno, last, node.value)
            elif name.startswith(_DJANGO):
                self._note_setting(node.lineno, name.removeprefix(_DJANGO).lower(), node.value)
            elif "celeryconfig" in self._path:
                self._note_setting(node.lineno, name, node.value)
        self.generic_visit(node)

    def _note_setting(self, line: int, name: str, value: ast.expr) -> None:
        finding = setting_finding(self._path, line, name.lower(), _constant(value))
        if finding is not None:
            self._found.findings.append(finding)

    def _note(self, line: int, name: str, verdict: Verdict, ours: str) -> None:
        self._found.findings.append(Finding(self._path, line, name, verdict, ours))


_ONLY_OF_A_TASK = frozenset({"retry", "update_state", "replace"})
"""Words that many libraries have: they are Celery's where a bound task is."""


def _is_task_decorator(name: str) -> bool:
    return name.rpartition(".")[2] in ("task", "shared_task", "periodic_task") and name != "task"


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
