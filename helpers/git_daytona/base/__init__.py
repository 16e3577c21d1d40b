"""What all rooms use: errors, secrets, files, child processes, messages."""
