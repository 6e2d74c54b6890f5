"""What an operator reads when something is lacking."""

import errno
import os
import resource
from pathlib import Path

import pytest

from mqworker.actors.run_slot import RunSlots
from mqworker.supervisor.plain_reasons import reason_of, reason_of_signal


def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)

    with pytest.raises(OSError, match="No space") as caught:
        RunSlots(str(tmp_path / "slots"))

    assert reason_of(caught.value) == (
        f"no space left on the disk for {tmp_path / 'slots'}; make room (No space left on device)"
    )


def test_too_few_descriptors_are_named_with_the_limit() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    reason = reason_of(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    assert reason.startswith(f"too few file descriptors, the limit is {limit}; raise it")


def test_a_signal_that_says_little_is_explained() -> None:
    assert "no space left on the disk for /data/slots" in reason_of_signal("SIGBUS", "/data/slots")
    assert reason_of_signal("SIGKILL", "/data/slots") == "SIGKILL"


def test_the_blocks_of_the_slots_are_there_before_anybody_writes(tmp_path: Path) -> None:
    RunSlots(str(tmp_path / "slots"))

    found = (tmp_path / "slots").stat()
    assert found.st_blocks * 512 >= found.st_size
