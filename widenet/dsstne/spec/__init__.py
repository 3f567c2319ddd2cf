"""DSSTNE's network documents, said in this project's words: plain values in, plain values out."""
