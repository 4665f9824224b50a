"""Maps and spectra of a run of `spectra`, out of its Parquet outputs and the cube itself, in bounded memory."""
