"""The Formula 1 database as a heterogeneous graph with times, and the tasks of RelBench's rel-f1 on it.

    python examples/relational_f1.py FOLDER            # nine tables of the Ergast database: circuits.csv.gz, races.csv.gz, ...
    python examples/relational_f1.py FOLDER --task driver-dnf --runs 5 [--fanouts 128,64] [--epochs 10] [--json FILE]
    python examples/relational_f1.py FOLDER --task driver-dnf --runs 5 --lightgbm       # trees on the driver's own row

Needs pandas: ``pip install 'bulksample[tables,pyg]'``. Nothing that happens after 2010-01-01 is in the graph, and features are scaled by
rows up to 2005-01-01, before which models train. A seed is a driver and a date; its batch holds nothing later than that date.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import bulksample as bs

T_VAL, T_TEST = "2005-01-01", "2010-01-01"
DAY = 86400  # times are unix seconds
PRACTICE = [f"{session}_{part}" for session in ("fp1", "fp2", "fp3", "quali", "sprint") for part in ("date", "time")]
DROPPED = {  # the columns that RelBench drops
    "races": ["url", *PRACTICE],
    "circuits": ["url"],
    "drivers": ["number", "driverRef", "url", "code", "forename", "surname"],
    "results": ["positionText", "time", "fastestLapTime", "fastestLapSpeed"],
    "driver_standings": ["positionText"],
    "constructors": ["url", "constructorRef"],
    "constructor_standings": ["positionText"],
    "constructor_results": ["status"],
    "qualifying": ["q1", "q2", "q3"],
}
SCHEMA = {
    "races": {"primary_key": "raceId", "foreign_keys": {"circuitId": "circuits"}, "time": "date", "columns": {"name": "category"}},
    "circuits": {
        "primary_key": "circuitId",
        "columns": {"circuitRef": "drop", "name": "drop", "location": "drop", "country": "category", "alt": "number"},
    },
    "drivers": {"primary_key": "driverId", "columns": {"nationality": "category", "dob": "number"}},
    "results": {
        "primary_key": "resultId",
        "foreign_keys": {"raceId": "races", "driverId": "drivers", "constructorId": "constructors"},
        "time": "date",
        "columns": {"statusId": "category"},
    },
    "driver_standings": {
        "primary_key": "driverStandingsId",
        "foreign_keys": {"raceId": "races", "driverId": "drivers"},
        "time": "date",
    },
    "constructors": {"primary_key": "constructorId", "columns": {"name": "drop", "nationality": "category"}},
    "constructor_standings": {
        "primary_key": "constructorStandingsId",
        "foreign_keys": {"raceId": "races", "constructorId": "constructors"},
        "time": "date",
    },
    "constructor_results": {
        "primary_key": "constructorResultsId",
        "foreign_keys": {"raceId": "races", "constructorId": "constructors"},
        "time": "date",
    },
    "qualifying": {
        "primary_key": "qualifyId",
        "foreign_keys": {"raceId": "races", "driverId": "drivers", "constructorId": "constructors"},
        "time": "date",
    },
}


def read_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Read the nine tables; rows of a race get its date (qualifying a day earlier), and timed tables are sorted by it."""
    tables = {
        name: pd.read_csv(Path(folder) / f"{name}.csv.gz", na_values="\\N").drop(columns=columns) for name, columns in DROPPED.items()
    }
    races = tables["races"]
    races["date"] = pd.to_datetime(races["date"] + " " + races.pop("time").fillna("00:00:00"))
    for name, schema in SCHEMA.items():
        if "raceId" in schema.get("foreign_keys", {}):
            tables[name] = tables[name].merge(races[["raceId", "date"]], on="raceId")
    tables["qualifying"]["date"] -= pd.Timedelta(days=1)
    tables["drivers"]["dob"] = pd.to_datetime(tables["drivers"]["dob"])
    return {
        name: table.sort_values("date", kind="stable", ignore_index=True) if "date" in table else table for name, table in tables.items()
    }


def make_graph(tables: dict[str, pd.DataFrame], until: str = T_TEST) -> bs.Graph:
    """Return the graph of all rows dated up to `until`; vertex v of a type is row v of its table."""
    return bs.from_tables(tables, SCHEMA, until=until, fit_until=T_VAL, name="rel-f1")


class Seeds(NamedTuple):
    """The examples of a task: the driver, the time at which it is asked about him, and the answer."""

    driver: np.ndarray  # int64 vertices of type drivers
    time: np.ndarray  # int64 unix seconds
    label: np.ndarray  # float64


class Task(NamedTuple):
    """A task: the table it is asked of, the days that its answer spans, and the answer from the rows of a driver in that span."""

    table: str
    days: int
    metric: str
    answer: tuple[str, str]  # column and aggregation


TASKS = {
    "driver-dnf": Task("results", 30, "rocauc", ("unfinished", "max")),
    "driver-top3": Task("qualifying", 30, "rocauc", ("on_top", "max")),
    "driver-position": Task("results", 60, "mae", ("positionOrder", "mean")),
}


ANSWERS = {"unfinished": lambda results: results["statusId"] != 1, "on_top": lambda qualifying: qualifying["position"] <= 3}


def task_table(tables: dict[str, pd.DataFrame], name: str) -> dict[str, Seeds]:
    """Return the training, validation and test seeds of a task.

    A driver is asked about at time t if he has a row in (t, t + days]. Training times go back from `T_VAL` in steps of as many days to the
    first race; 40 validation times begin at `T_VAL`, of which those stay whose answer lies before `T_TEST`; 40 test times begin there.
    """
    task = TASKS[name]
    rows = tables[task.table]
    if task.answer[0] not in rows:
        rows = rows.assign(**{task.answer[0]: ANSWERS[task.answer[0]](rows).astype(float)})
    step = task.days * DAY
    val, test = (int(np.datetime64(day, "s").astype(np.int64)) for day in (T_VAL, T_TEST))
    first = int(tables["races"]["date"].min().timestamp())
    times = {
        "train": np.arange(val - step, first - 1, -step),
        "val": np.arange(val, min(val + 40 * step, test - step + 1), step),
        "test": test + step * np.arange(40),
    }
    stamps = rows["date"].to_numpy().astype("datetime64[s]").astype(np.int64)
    vertex = pd.Series(np.arange(len(tables["drivers"])), tables["drivers"]["driverId"])
    return {split: _seeds(rows, stamps, vertex, chosen, step, task.answer) for split, chosen in times.items()}


def _seeds(rows: pd.DataFrame, stamps: np.ndarray, vertex: pd.Series, times: np.ndarray, step: int, answer: tuple[str, str]) -> Seeds:
    found = []
    for t in times:
        window = rows[(stamps > t) & (stamps <= t + step)]
        values = window.groupby("driverId")[answer[0]].agg(answer[1])
        found.append(pd.DataFrame({"driver": vertex[values.index].to_numpy(), "time": t, "label": values.to_numpy()}))
    whole = pd.concat(found, ignore_index=True)
    return Seeds(whole["driver"].to_numpy(np.int64), whole["time"].to_numpy(np.int64), whole["label"].to_numpy(np.float64))


def constant(seeds: dict[str, Seeds]) -> np.ndarray:
    """Predict the test seeds by the mean answer of their driver in the years before, or by that of all drivers."""
    past = pd.concat([pd.DataFrame({"driver": seeds[split].driver, "label": seeds[split].label}) for split in ("train", "val")])
    return pd.Series(seeds["test"].driver).map(past.groupby("driver")["label"].mean()).fillna(past["label"].mean()).to_numpy()


def score(metric: str, label: np.ndarray, predicted: np.ndarray) -> float:
    """Return the area under the ROC curve, or the mean absolute error."""
    if metric == "mae":
        return float(np.abs(label - predicted).mean())
    order = pd.Series(predicted).rank().to_numpy()
    positive = label > 0
    below = order[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(below / (positive.sum() * (~positive).sum()))


def train(graph: bs.Graph, seeds: dict[str, Seeds], metric: str, fanouts: list[int], epochs: int, seed: int) -> dict[str, float]:
    """Train for some epochs and return the scores of the one with the best validation score."""
    import torch
    from relational_model import RelationalSAGE

    torch.manual_seed(seed)
    model = RelationalSAGE(graph, "drivers", layers=len(fanouts))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    better = min if metric == "mae" else max
    loaders = {
        split: bs.Loader(
            graph, "sage", fanouts, seeds=("drivers", own.driver), times=own.time, batch_size=512, shuffle=split == "train", seed=seed,
            frontier="new",
        )
        for split, own in seeds.items()
    }  # fmt: skip
    middle, loss_of = (seeds["train"].label.mean(), torch.nn.L1Loss()) if metric == "mae" else (0.0, torch.nn.BCEWithLogitsLoss())
    history = []
    for _ in range(epochs):
        model.train()
        for batch in loaders["train"]:
            label = torch.from_numpy(seeds["train"].label[batch.minibatch.rows["drivers"].places]).float()
            loss = loss_of(model(batch) + middle, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        found = {}
        for split in ("val", "test"):
            with torch.no_grad():
                predicted = torch.cat([model(batch) + middle for batch in loaders[split]]).numpy()
            found[split] = score(metric, seeds[split].label, predicted)
        history.append(found)
    return better(history, key=lambda found: found["val"])


def train_row(tables: dict[str, pd.DataFrame], seeds: dict[str, Seeds], metric: str, seed: int) -> dict[str, float]:
    """Boost trees on the driver's own row, his day of birth and nationality; stop by the validation score."""
    import lightgbm

    drivers = tables["drivers"]
    row = pd.DataFrame({"dob": drivers["dob"].astype("int64"), "nationality": drivers["nationality"].astype("category")})
    rows = {split: row.iloc[own.driver].reset_index(drop=True) for split, own in seeds.items()}
    regression = metric == "mae"
    options = {
        "objective": "mae" if regression else "binary", "metric": "mae" if regression else "auc", "learning_rate": 0.05, "verbose": -1,
        "bagging_fraction": 0.8, "bagging_freq": 1, "num_threads": 1, "seed": seed,
    }  # fmt: skip
    data = {split: lightgbm.Dataset(rows[split], seeds[split].label) for split in ("train", "val")}
    stop = lightgbm.early_stopping(50, verbose=False)
    trees = lightgbm.train(options, data["train"], 500, [data["val"]], callbacks=[stop])
    return {split: score(metric, seeds[split].label, trees.predict(rows[split])) for split in ("val", "test")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder of the tables")
    parser.add_argument("--task", choices=TASKS, help="train on this task; without it, the graph and its tasks are described")
    parser.add_argument("--fanouts", default="128,64", help="neighbors per relation and hop; -1 takes all")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1, help="number of seeds: 0, 1, ...")
    parser.add_argument("--lightgbm", action="store_true", help="trees on the driver's own row in the place of the graph; needs lightgbm")
    parser.add_argument("--json", type=Path, help="file for the scores")
    options = parser.parse_args()
    tables = read_tables(options.folder)
    graph = make_graph(tables)
    edges = sum(relation.edges for relation in graph.relations)
    print(f"{graph.n} vertices of {len(graph.types)} types, {edges} edges of {len(graph.relations)} relations")
    for name in TASKS if options.task is None else [options.task]:
        for split, seeds in task_table(tables, name).items():
            print(f"{name} {split}: {len(seeds.driver)} seeds at {len(np.unique(seeds.time))} times, mean {seeds.label.mean():.4f}")
    if options.task is None:
        return
    seeds, metric = task_table(tables, options.task), TASKS[options.task].metric
    print(f"a driver's constant: test {metric} {score(metric, seeds['test'].label, constant(seeds)):.4f}")
    fanouts, runs = [int(s) for s in options.fanouts.split(",")], []
    for run in range(options.runs):
        began = time.perf_counter()
        found = train_row(tables, seeds, metric, run) if options.lightgbm else train(graph, seeds, metric, fanouts, options.epochs, run)
        runs.append(found | {"seconds": time.perf_counter() - began})
        print(f"run {run}: " + ", ".join(f"{key} {value:.4f}" for key, value in runs[-1].items()), flush=True)
    mean, spread = np.mean([run["test"] for run in runs]), np.std([run["test"] for run in runs], ddof=min(1, len(runs) - 1))
    print(f"test {metric} {mean:.4f} ± {spread:.4f} over {len(runs)} runs")
    if options.json:
        found = {"task": options.task, "metric": metric, "lightgbm": options.lightgbm, "fanouts": fanouts, "runs": runs}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
