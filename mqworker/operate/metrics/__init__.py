"""What Prometheus and autoscalers read: the system as Redis knows it, and one node as its supervisor does."""
