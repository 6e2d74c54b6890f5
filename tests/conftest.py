"""What all tests share: Hypothesis does not measure time, for the machine may be busy with other tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("mqworker", deadline=None)
settings.load_profile("mqworker")
