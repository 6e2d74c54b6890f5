"""Process titles: what `ps` and `top` show of each process, such as `mqworker: worker 0 (shop:app)`.

On Linux the title is written over the arguments of the command, which the kernel shows. Nothing is imported
for it, and it takes 0.1 ms; a package would take 5 ms of every start. Where it cannot be done (another
system, a kernel that does not tell where the arguments are) the process keeps the command line that it has.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_NAME = 15
_LONGEST_NAME = 15
# In /proc/self/stat, counted after the name in brackets, which may hold anything.
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46


def set_title(what: str, app: str | None = None) -> None:
    """Call this process so; `what` is the name of a child, or another word for what it does."""
    if sys.platform != "linux":
        return
    name = what.replace(":", " ")
    title = f"mqworker: {name} ({app})" if app else f"mqworker: {name}"
    with suppress(OSError, ValueError, IndexError):
        _write_over_arguments(title.encode())
    short = f"mqw {name}".encode()[:_LONGEST_NAME]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(short), 0, 0, 0)


def _write_over_arguments(title: bytes) -> None:
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    shown = Path("/proc/self/cmdline").read_bytes()
    # Only where the memory holds what the kernel shows: then it is what it seems to be.
    if not 0 < end - begin == len(shown) or ctypes.string_at(begin, end - begin) != shown:
        return
    # The last byte stays zero, or the kernel would take the environment for a part of it.
    ctypes.memmove(begin, title[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)
