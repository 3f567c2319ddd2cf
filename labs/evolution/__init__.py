"""A network trained by an evolution strategy that exchanges seeds."""
