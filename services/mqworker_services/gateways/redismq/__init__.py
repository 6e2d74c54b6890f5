"""RedisMQ's five commands over RESP: redis-cli and any Redis client work unmodified."""
