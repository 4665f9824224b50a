"""The worker's workloads, one module each. `prismline_worker.workload` defines their interface."""
