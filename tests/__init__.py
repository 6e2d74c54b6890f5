"""Tests. A package, because some libraries ship a `tests` of their own that would hide this folder."""
