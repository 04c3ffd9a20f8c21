"""Load a graph, sample mini-batches with their features and labels, and train: the eight lines of README.

bulksample data make dcsbm --preset reddit --vertices 2000 --degree 20 --seed 1 -o my-graph
python examples/quickstart.py my-graph
"""

import sys

import bulksample as bs

graph = bs.load(sys.argv[1])
loader = bs.Loader(graph, sampler="sage", fanouts=[15, 10, 5], batch_size=1024, seeds="train", seed=1)
for batch in loader:
    print(f"{len(batch.seeds)} seeds, {len(batch.vertices)} vertices, x {batch.x.shape}, y {batch.y.shape}, digest {batch.digest()[:16]}")
report = bs.train(graph, method="sync", fanouts=[10, 10], hidden=32, batch_size=128, epochs=3, lr=0.01, seed=1)
print(f"test accuracy {report['test_accuracy']:.3f}")
