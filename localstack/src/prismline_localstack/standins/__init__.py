"""Stand-ins for outside systems, on loopback. They speak the real protocols and refuse invalid requests."""
