"""The worker: decomposes the spectra of one chunk into Gaussian components."""
