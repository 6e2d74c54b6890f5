"""The one key of the integration."""

from mqworker.model.names import MessageId


def record_key(namespace: str, result: MessageId) -> str:
    """A string with a time to live: what Django's task API tells of a call beside its state (records.py)."""
    return f"{namespace}:django:{result}"
