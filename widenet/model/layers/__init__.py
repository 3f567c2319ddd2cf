"""Layer kinds, one file each."""
