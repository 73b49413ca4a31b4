"""rondoctl fsck where each node has a vault of its own: copies, and nodes that are away."""

import contextlib
import shutil

import pytest

from agents_by_hand import two_agents
from rondo_cluster import until
from test_fsck import edited, fsck, repaired, row, saved, told


@pytest.fixture(scope="module")
def cluster():
    with two_agents() as it:
        yield it


@contextlib.contextmanager
def only(cluster, name):
    other = "b" if name == "a" else "a"
    cluster.ctl("cordon", other)
    try:
        yield
    finally:
        cluster.ctl("uncordon", other)


def saved_on(cluster, node, name):
    with only(cluster, node):
        return saved(cluster, name)


def place(cluster, node, job, step):
    return cluster.agents_by_hand.vault(node) / f"job-{job}/step-{step}.1"


def copies(cluster, number):
    return cluster.sql("select node, lost from shard_copy where checkpoint = %s order by node",
                       number)


def test_a_copy_that_no_row_knows_and_one_that_is_lost(cluster):
    job = saved_on(cluster, "a", "copies")
    saved_on(cluster, "b", "beside")  # the vault of b is not empty
    fsck(cluster)
    number, _ = row(cluster, job, 20)
    path = f"job-{job}/step-20.1"
    shutil.copytree(place(cluster, "a", job, 20), place(cluster, "b", job, 20))
    found = repaired(cluster, "COPY_UNKNOWN", path, job)
    assert found[0]["node"] == "b"
    assert copies(cluster, number) == [("a", False), ("b", False)]
    shutil.rmtree(place(cluster, "b", job, 20))
    repaired(cluster, "COPY_LOST", path, job)
    assert copies(cluster, number) == [("a", False), ("b", True)]
    assert row(cluster, job, 20)[1] == "COMMITTED"
    shutil.rmtree(place(cluster, "a", job, 20))  # the only one that was left
    repaired(cluster, "MISSING", path, job)
    assert row(cluster, job, 20)[1] == "DAMAGED"


def test_a_node_that_is_away_is_told_and_nothing_of_it_is_given_up(cluster):
    job = saved_on(cluster, "b", "away")
    fsck(cluster, "--job", job)
    agents = cluster.agents_by_hand
    agents.kill("b")
    try:
        until(lambda: fsck_fails(cluster, job), "its agent is gone")
        report = fsck(cluster, "--job", job, "--repair", exit=1)
        assert [(each["kind"], each["node"], each["outcome"])
                for each in report["differences"]] == [("NOT_LOOKED_AT", "b", "LEFT")]
        assert row(cluster, job, 20)[1] == "COMMITTED"
    finally:
        agents.start("b")
    agents.ready(2)
    until(lambda: not fsck_fails(cluster, job), "it is back")


def fsck_fails(cluster, job):
    return cluster.ctl("fsck", "--job", job, check=False).returncode != 0


def test_a_copy_on_a_node_that_nobody_knows(cluster):
    job = saved_on(cluster, "a", "nowhere")

    def change(stored):
        stored.copies[0].node = "nowhere"

    edited(cluster, row(cluster, job, 20)[0], change)
    cluster.agents_by_hand.ready(2)
    until(lambda: {(each["kind"], each["node"]) for each in fsck(
        cluster, "--job", job, exit=1)["differences"]} ==
        {("NOT_LOOKED_AT", "nowhere"), ("COPY_UNKNOWN", "a")}, "both agents are back")
    report = fsck(cluster, "--job", job, "--repair", exit=1)
    assert sorted((each[0], each[2]) for each in told(report)) == [
        ("COPY_UNKNOWN", "REPAIRED"), ("NOT_LOOKED_AT", "LEFT")]
    assert row(cluster, job, 20)[1] == "COMMITTED"
