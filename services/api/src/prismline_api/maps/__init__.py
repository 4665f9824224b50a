"""Maps and spectra of a run of `spectra`, from its Parquet outputs and the cube itself, in bounded memory."""
