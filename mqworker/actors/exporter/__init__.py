"""The exporter: the one process of a node that sends traces and metrics to a collector."""
