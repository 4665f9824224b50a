"""The splitter's workloads, one module each. `prismline_splitter.workload` defines their interface."""
