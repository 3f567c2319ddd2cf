"""Frozen layers: training leaves the weights that they use as it begins with them."""

from dataclasses import replace

from widenet.errors import FitError
from widenet.plan.layout import Layout, Weight
from widenet.plan.place import Place


def with_frozen(layout: Layout) -> dict[str, Weight]:
    """Return the weights of a layout; those that a frozen layer owns or shares are not trained.

    Raises:
        FitError: No weight is left to train, or one of them is described.
    """
    frozen = [layer for layer in layout.network.layers if getattr(layer, "frozen", False)]
    if not frozen:
        return dict(layout.weights)
    names, place = {layer.name for layer in frozen}, Place.find(layout.network, frozen[0]).of("frozen")
    used = {link.weight for (layer, _), link in layout.links.items() if layer in names}
    weights = {
        name: replace(weight, trained=False, norm_limit=None)
        if name in used or weight.layer in names
        else weight
        for name, weight in layout.weights.items()
    }
    for weight in weights.values():
        if weight.describes is not None and not weights[weight.describes].trained:
            raise FitError(
                f"{place} must be false where the weights of features follow their attributes, as those of"
                f' "{weight.layer}" do. Remove it, or "described_by".'
            )
    if not any(weight.trained and weight.numbers for weight in weights.values()):
        raise FitError(f"{place} must leave weights to train; all are frozen. Set it to false in one layer.")
    return weights
