"""Training on a device: model, features and minibatches lie there, and each stage has a stream of its own. Imports torch.

    sample bulk i + 1  (stream of the back end)   ->  fetch the rows of minibatch t + 1  (a stream)   ->  step t  (torch's stream)

Events put one after the other, never the host: what a stage has made is waited for before it is used, and what has been used is
waited for before its memory is written again. `place` says where a rank computes, `cuda` is a device as the other parts see it,
and tests give both an emulated one.
"""
