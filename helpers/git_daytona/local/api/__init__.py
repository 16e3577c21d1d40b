"""The REST API: sandboxes, their life, snapshots, what the server says of itself."""
