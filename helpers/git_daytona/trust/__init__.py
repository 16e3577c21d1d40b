"""How the gateway's host key is trusted: keys, known_hosts, the pin file, what the API publishes,
and the verdict."""
