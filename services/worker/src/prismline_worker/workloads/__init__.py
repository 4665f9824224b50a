"""The workloads that the worker knows, a module each. `prismline_worker.workload` says what one has to have."""
