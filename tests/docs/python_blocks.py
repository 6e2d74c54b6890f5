"""Runs the Python blocks of one page in order, as one program; started by page_run.py, which sends them.

`print(...)  # text` must print that text, where `…` stands for anything. What is wrong is told with the page
and its line.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import re
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

_PRINTED = re.compile(r"\s*print\(.*\)  # (?P<text>.+)")


def main() -> int:
    """Run the blocks that come in as lines of JSON, and answer each with a line: whether all was well."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a thread of the page prints after its block must not look like an answer
    sys.path.insert(0, "")
    names: dict[str, Any] = {"__name__": "__page__"}
    for module in sys.argv[1:]:
        exec(f"from {module} import *", names)  # noqa: S102 - what the page says
    for line in sys.stdin:
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            is_well = run(json.loads(line), names)
        answer = {"is_well": is_well, "output": output.getvalue()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def run(block: dict[str, Any], names: dict[str, Any]) -> bool:
    """Run one block; whether it did what it says."""
    lines = block["code"].splitlines()
    expected = {
        number: found["text"] for number, line in enumerate(lines, 1) if (found := _PRINTED.fullmatch(line))
    }
    wrong: list[str] = []
    seen: set[int] = set()
    first = block["line"]

    def checking_print(*values: object, **options: Any) -> None:  # noqa: ANN401 - print's own
        builtins.print(*values, **options)  # noqa: T201 - that is what it is
        number = sys._getframe(1).f_lineno - first + 1
        if number in expected:
            seen.add(number)
            text = " ".join(str(value) for value in values)
            if not is_shape(expected[number], text):
                wrong.append(
                    f"line {first + number - 1}: printed {text!r}, the page says {expected[number]!r}"
                )

    names["print"] = checking_print
    tree = ast.increment_lineno(ast.parse(block["code"], block["page"]), first - 1)
    try:
        exec(compile(tree, block["page"], "exec"), names)  # noqa: S102 - what the page says
    except Exception as error:  # noqa: BLE001 - any error of the page's
        if block["raises"] == type(error).__name__:
            return True
        traceback.print_exc()
        return False
    if block["raises"] is not None:
        wrong.append(f"line {first}: {block['raises']} was not raised")
    wrong += [f"line {first + number - 1}: never printed" for number in expected.keys() - seen]
    for sentence in wrong:
        sys.stderr.write(f"{block['page']}, {sentence}\n")
    return not wrong


def is_shape(expected: str, text: str) -> bool:
    """Whether the text is as expected, with anything for `…`."""
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, text, re.DOTALL) is not None


if __name__ == "__main__":
    raise SystemExit(main())
