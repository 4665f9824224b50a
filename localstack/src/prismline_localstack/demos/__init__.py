"""Demonstrations, each on a harness of its own or on the one that runs."""
