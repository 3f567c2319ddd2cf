"""Object stores: datasets, runs, sources and predictions at s3://, gs:// and abfs://."""
