"""The outbox: calls as rows, written in a transaction of the application's database, moved into Redis."""
