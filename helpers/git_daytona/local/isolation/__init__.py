"""How sandboxes are kept apart from this machine, and how commands start in them."""
