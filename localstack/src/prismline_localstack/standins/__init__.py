"""Stand-ins, on loopback, for what is neither AWS nor ours. They speak the real protocol and refuse what it forbids."""
