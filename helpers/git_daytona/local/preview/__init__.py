"""The proxy that shows the ports of sandboxes."""
