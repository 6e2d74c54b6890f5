"""The only package that speaks to Redis: connection, keys, scripts and read-only views."""
