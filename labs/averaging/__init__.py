"""Local SGD: replicas of a network that train apart and are averaged every few steps."""
