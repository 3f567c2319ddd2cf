"""Neural networks with sparse and very wide input and output layers."""
