"""Benchmarks: one command, interleaved rounds, ratios within one run. Nothing here is a test."""
