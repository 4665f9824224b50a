"""The dead-letter consumer: archives dead letters and decides about them, executes recoveries, and runs the sweeper."""
