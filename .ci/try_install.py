"""Try an installed bulksample: its native back end is there, and samples the same mini-batches as the reference."""

import json
import subprocess
import sys
import tempfile


def bulksample(*words: str) -> dict:
    """Run a command of the installed package, and return its JSON object."""
    done = subprocess.run(
        [sys.executable, "-m", "bulksample", *words, "--json", "-"], capture_output=True, text=True, cwd=tempfile.gettempdir()
    )
    if done.returncode:
        sys.exit(f"bulksample {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def main() -> None:
    about = bulksample("info")
    if "native" not in about["backends"]:
        sys.exit(f"the native back end is missing: {about['native']}")
    with tempfile.TemporaryDirectory() as folder:
        bulksample("data", "make", "rmat", "--scale", "12", "--seed", "1", "-o", f"{folder}/graph")
        for sampler in ("sage", "labor", "ladies"):
            digests = {
                backend: bulksample(
                    "sample", f"{folder}/graph", "--sampler", sampler, "--fanouts", "15,10", "--batch-size", "512", "--digest",
                    "--backend", backend,
                )["digest"]
                for backend in ("reference", "native")
            }  # fmt: skip
            if len(set(digests.values())) > 1:
                sys.exit(f"{sampler}: the back ends sample different mini-batches: {digests}")
            print(f"{sampler}: {digests['native']}")
    print(f"bulksample {about['version']} works in {sys.prefix}")


if __name__ == "__main__":
    main()
