"""Training steps of one network in several programs, each written as its users would write it."""
