"""What may be asked of a run on Ray: checked where it is written, under old names too."""

import pytest

import tardigrad as tg
from tardigrad.runtime import Change, fail_at, read_record, train
from tardigrad.tasks import TASKS

TASK = TASKS["logistic_regression"](features=5, train_size=60)
RULE = tg.rules.sgd(lr=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.Processes(threads=0), "threads must be a whole number of at least 1"),
        (lambda: tg.Processes(digest_every=-1), "digest_every must be a whole number"),
        (lambda: tg.Processes(shared_memory="no"), "shared_memory must be True or False"),
        (lambda: tg.Processes(sync_log=1), "sync_log must be True or False"),
        (lambda: tg.Processes(resources={"worker": {}}), r'of \("worker", i\) or \("shard", i\)'),
        (lambda: tg.Processes(resources={("shrad", 0): {}}), "did you mean 'shard'?"),
        (lambda: tg.Scenario(impose=tg.Dispatcher(2)), "only step times can be imposed"),
        (lambda: tg.Scenario(faults=fail_at(worker=0, step=3)), r"faults is a list, such as \["),
        (lambda: tg.Scenario(changes=[5]), r"changes is a list, such as \[Change\(at_update=10\)"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_only_a_simulation_can_measure_is_refused():
    with pytest.raises(ValueError, match=r"measures = \['gap'\] need every view at hand"):
        train(TASK, RULE, evaluation=tg.Evaluation(5, measures=["gap"]))


def test_lists_are_kept_as_tuples():
    change = Change(5)
    assert tg.Scenario(changes=[change]) == tg.Scenario(changes=(change,))


def test_old_names_do_the_same_with_a_warning(crew, tmp_path):
    times = tg.Constant(workers=2, step_s=0.1)  # it saves between two looks at its shards
    with pytest.warns(DeprecationWarning, match="of train: write") as warned:
        run = train(
            TASK, RULE, updates=40, evaluate_every=10, splits=["train"], folder=tmp_path,
            cut_every=5, crew=crew, digest_every=8, impose=times,
        )  # fmt: skip
    assert [str(one.message).partition(": ")[2] for one in warned] == [
        "write evaluation=tg.Evaluation(every=…, splits=…)",
        "write checkpoints=tg.Checkpoints(folder=…, every=…)",
        "write processes=tg.Processes(crew=…, digest_every=…)",
        "write scenario=tg.Scenario(impose=…)",
    ]
    assert [r["update"] for r in run.history.records if "train_loss" in r] == [0, 10, 20, 30, 40]
    assert list(tmp_path.glob("cut-*"))
    assert {version for _, version, _ in read_record(tmp_path)["digests"]} == {8, 16, 24, 32, 40}
    assert run.schedule.end_time > 1.9  # twenty gradients of each worker, as slow as was imposed
