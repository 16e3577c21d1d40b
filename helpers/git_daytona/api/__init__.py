"""Daytona's API: the account, the sandboxes, and the bounds on what it may answer."""
