"""An example is tested in an environment of its own, by `tests/releases/test_example.py`."""

collect_ignore_glob = ["*"]
