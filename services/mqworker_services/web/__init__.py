"""The console: a page to watch a system and to act on it, live, and its JSON API."""
