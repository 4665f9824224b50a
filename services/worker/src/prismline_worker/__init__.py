"""The worker: processes one chunk, for example by fitting Gaussian components to its spectra."""
