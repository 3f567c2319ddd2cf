"""What a training needs, known before it starts: weights and their shards, memory, traffic and work,
without torch.
"""
