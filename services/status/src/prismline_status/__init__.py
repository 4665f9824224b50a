"""The status service: owns the status of every run and announces it."""
