"""Bytes and seconds of data-parallel and model-parallel training."""
