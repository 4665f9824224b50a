"""The `prismline` command."""
