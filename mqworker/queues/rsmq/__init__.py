"""RSMQ, on exactly the keys that its document lays down."""
