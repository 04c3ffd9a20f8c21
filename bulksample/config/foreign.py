"""Names that other libraries give to our options: a message about one of them suggests ours, which may be spelled quite differently."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import instead_of

FOREIGN = {
    "virtual_ranks": (
        "accumulate",
        "accumulation_steps",
        "accumulate_grad_batches",
        "grad_accum",
        "grad_accum_steps",
        "gradient_accumulation",
        "gradient_accumulation_steps",
    ),
    "clip_norm": (
        "clipnorm",
        "global_clipnorm",
        "clip_grad",
        "clip_grad_norm",
        "grad_clip",
        "grad_clip_norm",
        "gradient_clip",
        "gradient_clip_val",
        "gradient_clipping",
        "max_grad_norm",
        "max_norm",
    ),
    "lr_schedule": ("lr_scheduler", "lr_scheduler_type", "scheduler", "schedule"),
    "warmup": ("lr_warmup", "lr_warmup_epochs", "lr_warmup_steps", "num_warmup_steps", "warmup_epochs", "warmup_ratio", "warmup_steps"),
    "lr_end_factor": ("end_factor", "eta_min", "lr_end", "lr_min", "min_lr", "min_lr_rate"),
    "lr_step_size": ("step_size", "decay_every"),
    "lr_gamma": ("gamma", "decay_rate", "lr_decay"),
    "lr": ("learning_rate", "base_lr", "init_lr"),
    "weight_decay": ("wd", "l2_reg"),
    "steps_per_epoch": ("epoch_steps", "fixed_steps", "limit_train_batches", "num_steps", "steps_in_epoch"),
    "balance_classes": ("balance", "balanced", "class_balance", "class_balanced", "imbalanced_sampler", "oversample"),
    "sampling_weights": ("sampler_weights", "sampling_probs", "weighted_random_sampler", "weighted_sampler"),
    "edge_labels": ("edge_label", "edge_label_index"),
    "target_relation": ("edge_type", "etype", "target_etype", "target_edge_type"),
    "epochs": ("max_epochs", "n_epochs", "num_epochs", "num_train_epochs"),
    "batch_size": ("bs", "batchsize", "train_batch_size", "per_device_train_batch_size"),
    "fanouts": ("fan_out", "fanout", "num_neighbors", "num_neighbours", "sizes", "neighbors"),
    "layers": ("n_layers", "num_layers"),
    "hidden": ("hidden_channels", "hidden_dim", "hidden_size", "hidden_units", "n_hidden", "num_hidden"),
    "heads": ("n_heads", "num_heads"),
    "dropout": ("drop_rate", "feat_drop", "p_dropout"),
    "seeds": ("input_nodes", "nids", "train_idx"),
    "threads": ("num_threads", "num_workers", "workers"),
    "seed": ("manual_seed", "random_seed", "random_state"),
    "patience": ("early_stop", "early_stopping"),
    "precision": ("amp", "mixed_precision"),
    "checkpoint": ("checkpoint_dir", "ckpt", "default_root_dir", "output_dir", "save_dir"),
    "resume": ("ckpt_path", "resume_from", "resume_from_checkpoint"),
}  # by our name
_OURS = {theirs: ours for ours, names in FOREIGN.items() for theirs in names}
_DIFFERS = {
    **dict.fromkeys(("eta_min", "lr_end", "lr_min", "min_lr"), "which is a share of lr and not a rate"),
    **dict.fromkeys(("lr_warmup_epochs", "warmup_epochs"), "which counts steps, or epochs if written as 3epochs"),
    "warmup_ratio": "which counts steps, or epochs if written as 3epochs, and is no share of the run",
    "limit_train_batches": "which is a number of steps and no share of them; seeds go on where the epoch before ended",
    **dict.fromkeys(FOREIGN["virtual_ranks"], "which counts the mini-batches of a step on all ranks, not on each"),
}  # how ours differs from what another library calls so: in its unit, above all


def ours(name: str, known: Iterable[str]) -> str | None:
    """Return our name of an option that another library calls `name`, in any case, if it is among the known ones; else None."""
    for word in _spellings(name):
        if (found := _OURS.get(word, word)) != name and found in known:
            return found
    return None


def difference(name: str) -> str:
    """Return how our option differs from what another library calls `name`, after a comma; empty if both mean the same."""
    return next((f", {_DIFFERS[word]}" for word in _spellings(name) if word in _DIFFERS), "")


def unknown_option(name: str, known: Iterable[str]) -> str:
    """Return the message for an option that does not exist: our name of it, the nearest that exists, or all of them."""
    found = ours(name, known := list(known))
    return f"there is no option {name!r}; {f'did you mean {found!r}{difference(name)}?' if found else instead_of(name, known)}"


def _spellings(name: str) -> tuple[str, str]:
    """Return a name as one of small letters and underscores, with its capitals as beginnings of words and without."""
    letters = "".join(f"_{one.lower()}" if one.isupper() else one for one in name).strip("_").replace("-", "_")
    return letters, name.lower().replace("-", "_")
