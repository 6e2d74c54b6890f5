"""What a gateway may ask for, by queue model."""
