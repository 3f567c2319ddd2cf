"""Pruning, shared weights and Huffman codes, one after another."""
