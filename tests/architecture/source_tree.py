"""Source tree: the modules of the project as the architecture rules see them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the project root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, wherever they stand."""
        return list(ast.walk(self.tree))

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.path).with_suffix("").parts

    @property
    def stem(self) -> str:
        return self.parts[-1]

    @property
    def package(self) -> str:
        """The dotted package that relative imports start from."""
        return ".".join(self.parts[:-1])

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and dotted name of everything imported, wherever the import stands."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)

    def uses(self) -> Iterator[tuple[int, str]]:
        """Line and full dotted name of whatever is imported or used of an import, aliases resolved."""
        dotted_by_name = self._dotted_by_name()
        yield from self.imports()
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                root, _, rest = ast.unparse(node).partition(".")
                if root in dotted_by_name:
                    yield node.lineno, f"{dotted_by_name[root]}.{rest}".rstrip(".")

    def _dotted_by_name(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    names[alias.asname or root] = alias.name if alias.asname else root
            elif isinstance(node, ast.ImportFrom):
                names |= {
                    alias.asname or alias.name: f"{self._origin(node)}.{alias.name}" for alias in node.names
                }
        return names

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".")[: len(self.parts) - node.level]
        return ".".join([*above, *([node.module] if node.module else [])])


def modules(*folders: str) -> list[Module]:
    """All modules below these folders of the project, generated ones apart."""
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    paths = [(file, file.relative_to(ROOT).as_posix()) for file in files]
    return [_module(file, path) for file, path in paths if "/generated/" not in path]


@cache
def _module(file: Path, path: str) -> Module:
    """Read and parsed once for all rules."""
    return Module(path, file.read_text(encoding="utf-8"))
