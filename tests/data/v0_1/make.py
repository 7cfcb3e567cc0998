"""Writes what tardigrad 0.1 wrote: run it with that code, see README.md. Nothing imports it."""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import torch

import tardigrad as tg
from tardigrad.experiment import Spec, run, run_on_ray

HERE = Path(sys.argv[1])

QUADRATIC = {"name": "quadratic", "dimension": 12, "noise": 0.1}
LOGISTIC = {"name": "logistic_regression", "features": 6, "train_size": 64, "validation": 16}
GAMMA = {"name": "gamma", "workers": 3}
GAP_AWARE = {"name": "gap_aware", "lr": 0.05, "momentum": 0.9, "ema": 0.9}

SIMULATED = {
    "exact": {"task": LOGISTIC, "rule": GAP_AWARE, "engine": "exact", "measures": ["gap"]},
    "left": {
        "task": QUADRATIC,
        "rule": GAP_AWARE,
        "engine": "exact",
        "shards": 2,
        "cluster": GAMMA | {"absences": [{"worker": 1, "leaves_s": 150.0, "returns_s": 400.0}]},
    },
    "dana": {"task": QUADRATIC, "rule": {"name": "dana", "lr": 0.02}, "engine": "exact"},
    "fast": {
        "task": QUADRATIC,
        "rule": GAP_AWARE,
        "engine": "fast",
        "chunk": 4,
        "shards": 2,
    },
    "stream": {"task": LOGISTIC, "rule": GAP_AWARE, "engine": "fast", "chunk": 4},
    "together": {
        "task": QUADRATIC,
        "rule": {"name": "fasgd", "lr": 0.02},
        "engine": "exact",
        "link": {"name": "bandwidth_aware", "c_push": 0.5, "c_pull": 0.5},
    },
}

ON_RAY = {
    "recorded": {"task": QUADRATIC, "rule": GAP_AWARE, "shards": 2},
    "recorded-logistic": {"task": LOGISTIC, "rule": {"name": "dana", "lr": 0.02}},
}

STEPS = {"updates": 20, "evaluate_every": 10, "checkpoint_every": 5, "seed": 3}


def interrupt(tick):
    if tick.updates >= 12:
        raise KeyboardInterrupt


def stopped_on_ray(live):
    if live.shards and min(s.version for s in live.shards) >= 10:
        raise KeyboardInterrupt


def simulated():
    for name, more in SIMULATED.items():
        spec = Spec.of({"cluster": GAMMA, **STEPS, **more})
        run(spec, HERE / name)
        if name != "exact":  # of the others only the end is needed
            shutil.move(HERE / name / "params.safetensors", HERE / f"{name}.params")
            shutil.rmtree(HERE / name)
        try:
            run(spec, HERE / f"{name}-interrupted", begin=lambda schedule: interrupt)
        except KeyboardInterrupt:
            continue
        raise SystemExit(f"{name} was not interrupted")


def on_ray():
    for name, more in ON_RAY.items():
        spec = Spec.of({"cluster": GAMMA | {"workers": 2}, **STEPS, **more})
        run_on_ray(spec, HERE / name)
    slow = {"name": "gamma", "workers": 2, "mean_s": 0.3}
    spec = Spec.of({"cluster": slow, **STEPS, **ON_RAY["recorded"]})
    try:
        run_on_ray(spec, HERE / "ray-interrupted", impose=True, watch=stopped_on_ray)
    except KeyboardInterrupt:
        return
    raise SystemExit("the run on Ray was not interrupted")


def schedules():
    away = (tg.Absence(2, 3.0), tg.Absence(1, 5.0, 9.0))
    cluster = tg.Gamma(workers=4, mean_s=1.0, absences=away)
    network = tg.Network(latency_s=0.05)
    made = {
        "async": tg.schedule(tg.Async(), cluster, updates=25, seed=1),
        "sync": tg.schedule(tg.Sync(), cluster, updates=12, seed=1, shards=2),
        "backup": tg.schedule(tg.Backup(1), cluster, updates=12, seed=1, shards=2),
        "networked": tg.schedule(
            tg.Async(), tg.Gamma(workers=3, mean_s=1.0, network=network), updates=15, shards=2
        ),
    }
    contents = {}
    for name, schedule in made.items():
        schedule.save(HERE / f"{name}.schedule")
        contents[name] = {
            "workers": schedule.workers,
            "shards": schedule.shards,
            "updates": schedule.updates,
            "end_time": schedule.end_time,
            "worker": schedule.worker.tolist(),
            "step": schedule.step.tolist(),
            "read": schedule.read.tolist(),
            "groups": [schedule.group(g).tolist() for g in range(schedule.groups)],
            "group_shard": schedule.group_shard.tolist(),
            "group_time_s": schedule.group_time_s.tolist(),
            "group_scale": schedule.group_scale.tolist(),
        }
    (HERE / "schedules.json").write_text(json.dumps(contents))


def swept():
    spec = Spec.of({"cluster": GAMMA, **STEPS, "task": LOGISTIC, "rule": GAP_AWARE})
    (HERE / "sweep.toml").write_text(spec.toml())
    words = ["rule.lr=[0.02,0.05]", "seed=[0,1]", "--jobs", "1"]
    command = ["tardigrad", "sweep", str(HERE / "sweep.toml"), *words, "--out", str(HERE / "sweep")]
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    (HERE / "sweep.toml").unlink()


def tidy():
    """Figures and traces are made again by `report`."""
    for pattern in ("*.png", "*.perfetto.json", "*.csv"):
        for path in HERE.rglob(pattern):
            if path.name != "gradients.csv":
                path.unlink()
    machine = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "maker": Path("/proc/cpuinfo").read_text().split("vendor_id\t: ")[1].split()[0],
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }
    (HERE / "made_on.json").write_text(json.dumps(machine, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    schedules()
    simulated()
    swept()
    on_ray()
    tidy()
