"""What a user sets, and where: environment, .env, git's configuration, the keyring, the Daytona
CLI's profile."""
