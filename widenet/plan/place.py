"""The place of a layer's setting in a document, for messages."""

from dataclasses import dataclass

from widenet.spec.layers import Layer
from widenet.spec.network import NetworkSpec


@dataclass(frozen=True)
class Place:
    """A layer of a document."""

    document: str
    index: int
    name: str

    @classmethod
    def find(cls, spec: NetworkSpec, layer: Layer) -> "Place":
        """Return the place of a layer."""
        return cls(spec.where, spec.layers.index(layer), layer.name)

    def of(self, key: str) -> str:
        """Return the place of a setting: document, JSON path and the layer's name."""
        return f'{self.document}: layers[{self.index}].{key} ("{self.name}")'
