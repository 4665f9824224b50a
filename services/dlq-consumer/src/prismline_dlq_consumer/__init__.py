"""The dlq-consumer service: archives, heals and recovers what failed."""
