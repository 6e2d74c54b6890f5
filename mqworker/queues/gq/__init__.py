"""gq: batches, partitions and deadlines, on Redis or a SQL database."""
