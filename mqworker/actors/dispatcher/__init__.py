"""The dispatcher: everything from ready to settled."""
