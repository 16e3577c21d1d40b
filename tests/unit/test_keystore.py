"""Where the keyring is looked for."""

import os
import socket

from git_daytona.settings import keystore


def test_a_start_without_a_bus_finds_systemds(tmp_path, monkeypatch):
    """Without one that is there, nothing is named; one that is named already stays."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    keystore.find("https://api.example.invalid")
    assert "DBUS_SESSION_BUS_ADDRESS" not in os.environ
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind("bus")
    keystore.find("https://api.example.invalid")
    assert os.environ["DBUS_SESSION_BUS_ADDRESS"] == f"unix:path={tmp_path}/bus"
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/mine")
    keystore.find("https://api.example.invalid")
    assert os.environ["DBUS_SESSION_BUS_ADDRESS"] == "unix:path=/mine"
