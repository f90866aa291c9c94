"""Rules for workflows that their linters do not check."""

import ast
import re
import tomllib

import pytest
import yaml

from release_check import ROOT

PATHS = sorted(ROOT.glob(".github/workflows/*.yml"))
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in PATHS}
# YAML reads the key "on" as a truth value.
ON = True
JOBS = [(name, job) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"]]


@pytest.fixture
def job(workflow, job_name):
    return WORKFLOWS[workflow]["jobs"][job_name]


each_workflow = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
each_job = pytest.mark.parametrize(("workflow", "job_name"), JOBS)


def test_the_workflows_are_there():
    assert set(WORKFLOWS) == {"ci", "docs", "gpu", "release", "wheels"}


@each_workflow
def test_actions_are_pinned_by_commit(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if used := re.search(r"uses: (.*)", line):
            local = used[1].startswith("./") and (ROOT / used[1]).is_file()
            assert local or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used[1]), line


def test_an_action_has_one_commit_everywhere():
    text = "".join(path.read_text(encoding="utf-8") for path in PATHS)
    used = set(re.findall(r"uses: ([\w./-]+)@(.*)", text))
    assert len(used) == len(dict(used)), sorted(used)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_nothing_is_allowed_unless_a_job_says_so(workflow):
    assert WORKFLOWS[workflow]["permissions"] == {}


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_runs_of_one_kind_wait_for_one_another(workflow):
    assert WORKFLOWS[workflow]["concurrency"].keys() == {"group", "cancel-in-progress"}


@each_job
def test_jobs_end_and_have_the_least_rights(job, workflow, job_name):
    assert "uses" in job or job["timeout-minutes"] <= 240
    # Only what publishes may do more than read, and it runs nothing of the checkout.
    if job_name == "publish":
        assert not any("run" in step for step in job["steps"])
        assert "environment" in job
    else:
        assert job["permissions"] == {"contents": "read"}


@each_workflow
def test_scripts_and_sessions_exist(path):
    text = path.read_text(encoding="utf-8")
    for script in re.findall(r"python\S* ((?:ci|tools)/\S+\.py)", text):
        assert (ROOT / script).is_file(), script
    for session in re.findall(r"nox -s (\w+)", text):
        assert session in sessions()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for group in re.findall(r"--group ([\w-]+)", text):
        assert group in groups["dependency-groups"]


def test_ci_runs_sessions_that_exist():
    matrix = WORKFLOWS["ci"]["jobs"]["session"]["strategy"]["matrix"]
    assert set(matrix["session"]) <= sessions()
    # A contributor runs them in a queue.
    assert sorted(listed("CHECKS")) == sorted(matrix["session"])


def test_contributing_begins_its_table_with_what_runs_by_default():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "it runs the first of these sessions" in text
    assert "runs the next ten of these sessions" in text
    default, *table = re.findall(r"^\| `nox -s (.*?)` \|", text, re.MULTILINE)
    assert [default] == listed("nox.options.sessions")
    assert set(table[:10]) == set(listed("CHECKS"))
    assert set(" ".join([default, *table]).split()) == sessions()


@pytest.mark.parametrize("workflow", ["wheels", "release"])
def test_every_package_can_be_chosen(workflow):
    inputs = WORKFLOWS[workflow][ON]["workflow_dispatch"]["inputs"]
    assert inputs["package"]["options"] == PACKAGES


def test_wheels_has_one_input():
    assert list(WORKFLOWS["wheels"][ON]["workflow_call"]["inputs"]) == ["package"]


def test_a_release_is_a_dry_run_unless_told_otherwise():
    assert WORKFLOWS["release"][ON]["workflow_dispatch"]["inputs"]["dry_run"]["default"] is True
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["if"] == "${{ !inputs.dry_run }}"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["with"]["attestations"] is True


def test_pull_requests_reach_no_runner_of_ours():
    for workflow in WORKFLOWS.values():
        runners = [job.get("runs-on", "") for job in workflow["jobs"].values()]
        if any("self-hosted" in runner for runner in runners):
            assert set(workflow[ON]) <= {"workflow_dispatch", "schedule"}


def tree():
    return ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))


def sessions():
    """Return the names of the sessions of the noxfile, without importing nox."""
    return {
        node.name
        for node in tree().body
        if isinstance(node, ast.FunctionDef)
        and any("session" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def listed(name):
    for node in tree().body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"the noxfile has no list {name}")
