"""The page of a service: try a model in a browser."""
