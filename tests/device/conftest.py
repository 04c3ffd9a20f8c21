"""One thread: tests are small, and results must not depend on who else is busy."""

import torch

torch.set_num_threads(1)
