"""Exact nearest neighbours in a collection of vectors, cut into shards over processes.

Also batches single queries of many threads, reads collections from files or from a network's weights, and
exports approximate indexes whose recall it measures.
"""
