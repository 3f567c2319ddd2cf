"""Convolutions: hidden layers whose products are those of windows (`widenet.model.convolution`)."""

from widenet.model.layers.hidden import Activated
from widenet.spec.spatial import ConvolutionLayer

KIND = Activated[ConvolutionLayer]()
