"""mqworker: background work on Redis or Valkey, run by actor processes under leases that survive a crash."""

__version__ = "0.1.0"
