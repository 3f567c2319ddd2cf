"""Where a setting of a layer stands, for messages."""

from dataclasses import dataclass

from widenet.spec.layers import Layer
from widenet.spec.network import NetworkSpec


@dataclass(frozen=True)
class Place:
    """A layer, as messages name it."""

    document: str
    index: int
    name: str

    @classmethod
    def find(cls, spec: NetworkSpec, layer: Layer) -> "Place":
        """The place of a layer of a document."""
        return cls(spec.where, spec.layers.index(layer), layer.name)

    def of(self, key: str) -> str:
        """Where a setting of the layer stands: document, JSON path, and the layer's name."""
        return f'{self.document}: layers[{self.index}].{key} ("{self.name}")'
