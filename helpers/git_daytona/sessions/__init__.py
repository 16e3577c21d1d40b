"""Sessions: start, sync, status, recovery, deletion, and the state file that remembers them."""
