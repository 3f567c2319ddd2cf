"""The main job with everything in a store, and processes that are killed while they publish."""
