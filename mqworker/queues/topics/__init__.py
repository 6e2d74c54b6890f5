"""Topics: the model of the GOMQ document, on exactly its keys."""
