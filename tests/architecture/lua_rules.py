"""Lua rules: a script opens with its contract, binds names to its inputs, and uses only those names."""

import re

INPUT = re.compile(r"\b(?:KEYS|ARGV)\s*\[\s*\d+\s*\]")
CALL = re.compile(r"\bredis\s*\.\s*p?call\b")


def missing_title(stem: str, text: str) -> list[str]:
    """A header that does not open with the name and the purpose; parts shared by scripts need it too."""
    is_titled = any(line.startswith(f"-- {stem}: ") for line in _header(text)[:1])
    return [] if is_titled else [f"{stem}.lua: the header opens with '-- {stem}: <purpose>'"]


def missing_reply(stem: str, text: str) -> list[str]:
    """A header that does not say what the script returns."""
    is_told = any(re.search(r"\bReturns\b", line) for line in _header(text))
    return [] if is_told else [f"{stem}.lua: the header says what it Returns"]


def bare_inputs(stem: str, text: str) -> list[str]:
    """Numbered inputs outside the lines that only give them names."""
    problems = []
    is_binding = False
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("--")[0].strip()
        # A binding may run on over lines that end with a comma or the equals sign.
        is_binding = (is_binding or code.startswith("local ")) and not CALL.search(code)
        if INPUT.search(code) and not is_binding:
            problems.append(f"{stem}.lua:{number}: give the input a name in a local line of its own: {code}")
        is_binding = is_binding and (not code or code.endswith((",", "=")))
    return problems


def _header(text: str) -> list[str]:
    lines = text.splitlines()
    if lines and lines[0].startswith("#!lua"):
        lines = lines[1:]
    header = []
    for line in lines:
        if not line.startswith("--"):
            break
        header.append(line)
    return header
