"""A trained model as an HTTP service: requests in batches, newer models without a stop."""
