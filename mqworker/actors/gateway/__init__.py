"""What a gateway's process and the actors that serve it share."""
