import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("RONDO_BUILD", os.path.join(SOURCE, "build"))
os.environ.setdefault("RONDO_LIBRARY", os.path.join(BUILD, "lib", "librondo.so"))
sys.path.insert(0, os.path.join(SOURCE, "worker", "python"))
