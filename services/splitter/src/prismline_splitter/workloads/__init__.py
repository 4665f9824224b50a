"""The workloads that the splitter knows, a module each. `prismline_splitter.workload` says what one has to have."""
