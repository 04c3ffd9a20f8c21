"""Training on a GPU: the model, the features and the mini-batches are there, and each stage has a CUDA stream. Imports torch.

    sample bulk i + 1  (stream of the back end)   ->  fetch the rows of mini-batch t + 1  (a stream)   ->  step t  (torch's stream)

Events order the stages; the host does not wait. A stage waits until its inputs are complete, and until memory that it writes again
is no longer in use. `compute` is where a run starts; `cuda_context` is the GPU as the other modules see it. Tests use emulated ones.
"""
