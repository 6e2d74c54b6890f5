"""The single-purpose processes and the mail they exchange."""
