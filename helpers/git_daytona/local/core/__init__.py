"""What all of the embedded Daytona stands on: records, faults, profiles, the store."""
