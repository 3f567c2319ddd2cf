"""`widenet` whose searches wait for a line each, and whose loads of further models never end."""

import sys
from threading import Event

from widenet.cli import main
from widenet.serve.engine import Engine

load, search, loaded = Engine.load, Engine.search, []


def stuck(*arguments):
    if loaded:
        print("loading", flush=True)
        Event().wait()
    loaded.append(load(*arguments))
    return loaded[0]


def stopped(*arguments):
    sys.stdin.readline()
    return search(*arguments)


Engine.load, Engine.search = stuck, stopped
main(sys.argv[1:])
