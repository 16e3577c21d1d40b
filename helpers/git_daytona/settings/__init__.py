"""What a user sets: environment, .env, git's configuration, keyring, Daytona CLI's profile."""
