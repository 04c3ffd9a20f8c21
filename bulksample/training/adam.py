"""Adam of torch, without torch's compiler.

`torch.optim` imports `torch._dynamo` at the first call of an optimizer, so that a compiled program leaves these calls out. A program that
compiles nothing pays for it: 0.8 s of a processor and 72 MB on every rank (torch 2.13).
"""

from __future__ import annotations

import inspect

import torch

_PLAIN = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


class Adam(torch.optim.Adam):
    """The same updates as `torch.optim.Adam`, bit for bit. It cannot be compiled.

    Notes
    -----
    Its methods are those of torch below their decorators. `torch.optim` wraps `step` in ``no_grad``, and so does this class.
    """

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    add_param_group, zero_grad, state_dict, load_state_dict = (inspect.unwrap(getattr(torch.optim.Adam, name)) for name in _PLAIN)
