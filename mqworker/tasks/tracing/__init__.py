"""Tracing: spans of what is sent and of what is run, by OpenTelemetry."""
