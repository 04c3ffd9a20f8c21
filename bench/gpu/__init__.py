"""Check and measure the CUDA back end on a GPU.

    bash bench/on_a_card.sh OUT        checks, then figures, in two calls of five minutes: `plan` lists the sections, `runner` runs them
    python bench/run.py gpu            the figures alone
    python -m gpu.checks PART ...      some of the checks, with PYTHONPATH=.:tests:bench

With ``REHEARSE=1`` all of it runs at small sizes on an emulated device (`hardware`), where seconds mean nothing.
"""
