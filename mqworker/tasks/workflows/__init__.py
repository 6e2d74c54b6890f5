"""Workflows: chains, groups and chords of calls."""
