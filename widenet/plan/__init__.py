"""Plans a training before it starts, without torch: layout, shards, memory, traffic and work.

`binding.py` binds two documents to a dataset's fields and returns a `Layout`; everything else follows from
it. A `Job` is a layout on some machines. `memory.py` counts what a process needs and does, and says whether
it fits.
"""
