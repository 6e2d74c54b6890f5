"""The server from the wheel: found, launched, shared by all who run in one directory."""
