"""Tells outsiders how the node is, over HTTP: probes, metrics, how many workers are wanted."""
