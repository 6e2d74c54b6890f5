"""The child's side of a start: cut loose from everything of the supervisor's, then become the actor.

Whatever happens to the supervisor, no child outlives it: the kernel kills it (Linux), and the end of file of
its control pipe ends it (everywhere). A child is stopped by mail or by SIGKILL, never by a terminal or by
whoever signals a whole group.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError, StoreUnavailable
from mqworker.log import configure_logging, get_logger
from mqworker.supervisor.child_plan import StartFunction
from mqworker.supervisor.plain_reasons import reason_of
from mqworker.supervisor.process_title import set_title

EXIT_FAILED = 1
EXIT_UNAVAILABLE = 69
EXIT_ORPHANED = 70
EXIT_CONFIGURATION = 78

STACK_DUMP_SIGNAL = signal.SIGUSR2
# Pipes take as much in one piece, so the reader gets all of it or nothing.
LONGEST_WORDS_BYTES = 4_096

_PR_SET_PDEATHSIG = 1
# Those of the supervisor's; and SIGUSR1, which operators send to other programs to have a log opened again.
_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# Those that nobody can change, and those that Python itself ignores in every process.
_LEFT_ALONE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}


def live_forked(run: StartFunction, start: ChildStart, control: int, words: int) -> NoReturn:
    """The rest of a forked child's life."""
    code = EXIT_FAILED
    try:
        _cut_loose(start.parent_pid)
        inherited = () if start.node_lock is None else (start.node_lock,)
        _close_all_but({0, 1, 2, control, words, *inherited})
        # Open to the very end, or the supervisor would think that the pipe broke.
        mailbox = Mailbox(control, brings_descriptors=True)
        code = _live(run, start, mailbox, words)
    finally:
        _leave(code)


def live_spawned(run: StartFunction, start: ChildStart, control: int, words: int) -> NoReturn:
    """The rest of a spawned child's life: nothing was inherited, so nothing is to be closed."""
    code = EXIT_FAILED
    try:
        _cut_loose(start.parent_pid)
        mailbox = Mailbox(control, brings_descriptors=True)
        code = _live(run, start, mailbox, words)
    finally:
        _leave(code)


def _cut_loose(parent_pid: int) -> None:
    # A group of its own: signals to the supervisor's group pass by, and what a task leaves behind can be
    # killed together with its worker.
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)  # it died between the fork and the line above
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _LEFT_ALONE:
        with suppress(OSError, ValueError):
            signal.signal(number, _ignore if number in _UNHEARD else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler and not SIG_IGN, which programs started by a task would inherit and then not end on TERM."""


def _close_all_but(kept: set[int]) -> None:
    directory = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    for descriptor in {int(entry.name) for entry in list(Path(directory).iterdir())} - kept:
        with suppress(OSError):  # that of the listing itself is closed already
            os.close(descriptor)


def _live(run: StartFunction, start: ChildStart, control: Mailbox, words: int) -> int:
    configure_logging(start.settings.log_level, start.settings.log_format)
    set_title(start.name, start.app)
    faulthandler.disable()  # in case it was on in the supervisor: its handlers were reset
    faulthandler.enable()
    faulthandler.register(STACK_DUMP_SIGNAL)
    log = get_logger(actor=start.name, pid=os.getpid())
    # The one broad catch of a child: whatever ends an actor must become an exit code and one line.
    try:
        return run(control, start)
    except ConfigurationError as error:
        _say(words, str(error))
        return EXIT_CONFIGURATION
    except StoreUnavailable as error:
        _say(words, str(error))
        return EXIT_UNAVAILABLE
    except OSError as error:
        log.exception("child_failed")
        _say(words, reason_of(error))
        return EXIT_FAILED
    except SystemExit as error:
        _say(words, f"SystemExit: {error}")
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    except BaseException as error:
        log.exception("child_failed")
        _say(words, f"{type(error).__name__}: {error}")
        return EXIT_FAILED


def _say(words: int, text: str) -> None:
    """Last words, for the supervisor: over a pipe of their own, for the control pipe may be what broke."""
    with suppress(OSError):
        os.write(words, text.encode(errors="replace")[:LONGEST_WORDS_BYTES])


def _leave(code: int) -> NoReturn:
    # Not sys.exit: under a fork that would run the supervisor's own clean-up, up the stack, in the child.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)
