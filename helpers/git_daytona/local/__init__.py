"""The embedded Daytona: API, toolbox and SSH gateway on loopback."""
