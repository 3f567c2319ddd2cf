"""From raw interactions to batches: ingest, dataset, vocabulary, split, stream."""
