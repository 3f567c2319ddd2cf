"""Exact nearest neighbours in a collection of vectors, cut into shards; and approximate indexes of it,
measured.
"""
