"""Trackers: other programs that record a training, such as MLflow."""
