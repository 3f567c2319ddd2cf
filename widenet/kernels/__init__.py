"""The few hot operations."""
