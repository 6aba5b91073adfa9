import torch_memviz

with torch_memviz.record("run.pickle", holders=True) as recorder:  # before the model is built
    ...  # build the model and train for a few steps, each in: with recorder.step():
