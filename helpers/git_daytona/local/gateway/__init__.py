"""The SSH gateway."""
