"""What happened, told to people and machines."""
