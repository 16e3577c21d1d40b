"""What everything else stands on: errors, secrets, files, child processes, messages. Nothing of
ours is below it."""
