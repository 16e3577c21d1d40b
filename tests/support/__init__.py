"""What the tests stand on: servers, clients and programs for them to use. Fixtures are in the
folders' conftest.py."""
