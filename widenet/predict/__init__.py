"""The k best units for every example, and the files that hold them."""
