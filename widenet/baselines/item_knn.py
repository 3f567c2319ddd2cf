"""Item-based nearest neighbours under the cosine of co-occurrence."""

from widenet.baselines.evaluated_lists import Lists
from widenet.baselines.item_weights import nearest
from widenet.sparse import SparseBatch

NUM_NEIGHBOURS = 100


def item_knn(history: SparseBatch, width: int, num_neighbours: int = NUM_NEIGHBOURS) -> Lists:
    """Return the lists of item-based nearest neighbours.

    An item's score is the sum of its similarities to the user's items, over those that have it among their
    nearest neighbours: Deshpande and Karypis, "Item-based top-N recommendation algorithms", ACM TOIS 22(1),
    2004. Nothing of size width x width is stored.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        num_neighbours: Neighbours of each item.
    """
    return nearest(history, width, num_neighbours).lists
