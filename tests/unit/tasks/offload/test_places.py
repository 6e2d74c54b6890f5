"""A directory for large payloads: whole or not at all, and plain words where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqworker import Files
from mqworker.errors import ConfigurationError, InvalidArgument, PayloadMissing, PayloadUnavailable
from mqworker.tasks.offload.places import S3, place_at


def test_a_blob_is_written_read_listed_and_removed(tmp_path: Path) -> None:
    place = Files(tmp_path / "made" / "here")

    place.write("mqw/q/a.m1.ff", b"abc")

    assert place.read("mqw/q/a.m1.ff") == b"abc"
    ((name, at_ms),) = place.names("mqw")
    assert name == "mqw/q/a.m1.ff"
    assert at_ms > 1_700_000_000_000
    assert list(place.names("other")) == []
    place.remove(name)
    place.remove(name)
    with pytest.raises(PayloadMissing):
        place.read(name)
    assert not list((tmp_path / "made" / "here" / "mqw" / "q").iterdir())


def test_others_cannot_read_what_is_written(tmp_path: Path) -> None:
    Files(tmp_path / "payloads").write("mqw/q/a.m1.ff", b"abc")

    assert (tmp_path / "payloads").stat().st_mode & 0o077 == 0
    assert (tmp_path / "payloads/mqw/q/a.m1.ff").stat().st_mode & 0o077 == 0


def test_a_place_that_is_away_is_not_a_payload_that_is_missing(tmp_path: Path) -> None:
    place = Files(tmp_path / "gone")
    with pytest.raises(PayloadUnavailable):
        place.read("mqw/q/a.m1.ff")
    (tmp_path / "file").touch()
    with pytest.raises(PayloadUnavailable):
        Files(tmp_path / "file").write("mqw/q/a.m1.ff", b"abc")


def test_what_a_place_is_given_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="above"):
        Files("/srv", above=0)
    with pytest.raises(InvalidArgument, match="most"):
        Files("/srv", above=10, most=5)
    with pytest.raises(ConfigurationError, match="grace"):
        Files("/srv", grace=-1)
    with pytest.raises(ConfigurationError, match="bucket"):
        S3("s3://")


def test_a_url_names_a_place() -> None:
    assert repr(place_at("file:///srv/x", above=5, grace_s=1)) == "Files('/srv/x', above=5)"
    assert repr(place_at("s3://bucket/x/", above=5, grace_s=1)) == "S3('bucket/x', above=5)"
