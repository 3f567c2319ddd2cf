"""The process of a model whose searches wait for a line each, and whose later loads never end."""

import sys
from threading import Event

from widenet.serve.catalogue import Catalogue
from widenet.serve.engine import Engine
from widenet.serve.model_process import main

load, search, loaded = Engine.load, Catalogue.search, []


def stuck(*arguments):
    if loaded:
        print("loading", flush=True)
        Event().wait()
    loaded.append(load(*arguments))
    return loaded[0]


def stopped(*arguments):
    sys.stdin.readline()
    return search(*arguments)


Engine.load, Catalogue.search = stuck, stopped
main(sys.argv[1])
