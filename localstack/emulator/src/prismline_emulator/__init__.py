"""The AWS emulator: `server` is its process, `endpoints` and `emulated` are for those that start it."""
