"""Run all of Prismline on one machine: the emulator, the stacks and the service processes. See `harness`."""
