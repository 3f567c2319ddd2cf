"""What crosses shards and processes."""
