"""One result in, one readable form out; the only place that rounds."""
