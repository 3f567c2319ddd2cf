"""Exact sums and other exchanges between shards: in threads of one process, or between processes.

Also how the processes of a group are launched, find each other, agree, and notice that one was lost. This
is the only room that uses torch.distributed.
"""
