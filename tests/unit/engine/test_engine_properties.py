"""What holds for every job in every history: random jobs, random lives, operators that die or look too late.

A small cluster is kept in memory. Pods come to run, end, are deleted by others and go in their own time; the user
scales, suspends and resumes; the operator plans from what is there or from what was there a while ago, and what it
asks for is carried out under the server's rules: a status for an older version, a create for a name that is taken,
a delete or patch for another UID or version are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.happenings import HAPPENINGS, Happening, terminating, the_user_suspends_or_resumes, within

from trainmaster.api.status import JobStatus
from trainmaster.engine import gang
from trainmaster.engine.actions import Action, Create, Delete, Patch
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan
from trainmaster.engine.restarts import failures_of
from trainmaster.engine.services import service_of
from trainmaster.frameworks import BUILT_IN
from trainmaster.objects.resource import PODS, SERVICES, Resource
from trainmaster.testing.scene import UID, Scene, a_job

ENDS: tuple[Literal["Succeeded", "Failed"], ...] = ("Succeeded", "Failed")
PASSES = 12
"""In so many passes a cluster in which nothing happens must have come to rest."""

REMEMBERED = 6
"""How many states ago an operator may have looked."""

POLICIES: dict[str, st.SearchStrategy[Any]] = {
    "cleanPodPolicy": st.sampled_from([None, "None", "Running", "All", ""]),
    "backoffLimit": st.sampled_from([None, None, None, 3, 1, 0]),
    "activeDeadlineSeconds": st.sampled_from([None, None, None, 5000, 5000, 1000, 0]),
    "ttlSecondsAfterFinished": st.sampled_from([None, None, 20, 0]),
    "suspend": st.sampled_from([False, False, False, True]),
}
SPECIAL: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "TFJob": st.fixed_dictionaries(
        {}, optional={"successPolicy": st.just("AllWorkers"), "enableDynamicWorker": st.booleans()}
    ),
    "PyTorchJob": st.sampled_from([{}, {"elasticPolicy": {}}, {"elasticPolicy": {"metrics": [{"type": "Resource"}]}}]),
    "paddle-batch": st.fixed_dictionaries({}, optional={"intranet": st.sampled_from(["Service", "Host"])}),
    "MPIJob": st.sampled_from(
        [
            *({"version": version} for version in ("v1", "v1alpha2", "v2beta1")),
            {"version": "v2beta1", "launcherCreationPolicy": "WaitForWorkersReady"},
            {"version": "v2beta1", "runLauncherAsWorker": True},
        ]
    ),
}


@st.composite
def jobs(draw: st.DrawFn) -> Scene:
    """Any valid job of any kind, under any settings."""
    framework = draw(st.sampled_from(BUILT_IN))
    scene = a_job(
        framework.kind,
        group=framework.group,
        **draw(SPECIAL.get(framework.name, SPECIAL.get(framework.kind, st.just({})))),
    )
    dialect = framework.dialect(scene.manifest)
    optional = [role for role in dialect.roles if not role.required]
    chosen = {role.name for role in draw(st.lists(st.sampled_from(optional), min_size=1, unique=True))}
    if framework.kind == "TFJob" and {"Chief", "Master"} <= chosen:
        chosen -= {"Master"}
    if "elasticPolicy" in scene.manifest["spec"]:
        chosen |= {"Worker"}
    restarts = ["ExitCode", "OnFailure", "ExitCode", "Always", "Never"]
    for role in dialect.roles:
        if role.required or role.name in chosen:
            restart = draw(st.sampled_from([None, *(r for r in restarts if r in dialect.restart_policies)]))
            scene = scene.role(role.name, within(role, draw(st.sampled_from([2, 1, 3, 2, 1, 3, 0]))), restart)
    scheduler = draw(st.sampled_from(["", "", "volcano", "my-scheduler", "kube-batch"]))
    scene = scene.having(gang_scheduler=scheduler, compat_2021=draw(st.integers(0, 3)) == 3)
    return scene.policy(**draw(st.fixed_dictionaries(POLICIES)))


# What every plan keeps to.


def checked(observed: Observed, now: float) -> Plan:
    made = plan(observed, now)
    assert plan(observed, now) == made, "the same observation gave another plan"
    _check_order_does_not_matter(observed, now, made)
    _check_status(made.status)
    for action in made.actions:
        _check_action(observed, action)
    targets = [(a.resource, a.name) for a in made.actions]
    assert len(targets) == len(set(targets)), "two writes to one object"
    if observed.job.status.is_finished or observed.job.policy.suspend:
        new = {(a.resource.kind, a.name) for a in made.actions if isinstance(a, Create)}
        ready = _lasting(observed) if observed.framework.prepares_suspended else set()
        assert not new - ready, "a job that is over or suspended makes something"
    if gang.is_holding(observed):
        assert not any(map(_name_of_new_pod, made.actions)), "a pod is made before its group is admitted"
    for role, done in made.status.completed.items():
        assert not {observed.job.host(role, index) for index in done} & {_name_of_new_pod(a) for a in made.actions}
    assert made.wake_after is None or made.wake_after >= 0
    return made


def _check_order_does_not_matter(observed: Observed, now: float, made: Plan) -> None:
    """Caches promise no order."""
    other = plan(replace(observed, pods=observed.pods[::-1], services=observed.services[::-1]), now)
    assert other.status == made.status
    assert sorted(map(repr, other.actions)) == sorted(map(repr, made.actions))


def _check_status(status: JobStatus) -> None:
    types = [condition.type for condition in status.conditions]
    assert len(types) == len(set(types)), "a condition stands there twice"
    assert not {"Running", "Restarting"} <= set(types)
    assert not (status.is_true("Succeeded") and status.is_true("Failed"))
    assert not (status.is_finished and status.is_true("Running"))
    assert status.is_finished == (status.completion_time is not None)


def _check_action(observed: Observed, action: Action) -> None:
    job = observed.job
    match action:
        case Create(resource):
            body = action.body
            names = {member.name for member in job.members()}
            if resource != PODS:
                names |= {job.name, *(str(c.body["metadata"]["name"]) for c in observed.framework.companions(job))}
            (owner,) = body["metadata"]["ownerReferences"]
            assert action.name in names
            assert (owner["uid"], owner["controller"]) == (UID, True)
            assert "generateName" not in body["metadata"]
        case Delete(resource, target) if resource == job.resource:
            assert (target.uid, job.status.is_finished) == (UID, True)
        case Delete(_, target) | Patch(_, target, _):
            owners = {UID, *(delegate.uid for delegate in job.seen.delegates.values())}
            assert any(map(target.is_controlled_by, owners)), "a write to somebody else's object"
            assert not target.is_terminating


def _lasting(observed: Observed) -> set[tuple[str, str]]:
    """Kind and name of what outlives the job's activity."""
    companions = [c for c in observed.framework.companions(observed.job) if c.keep]
    return {(c.resource.kind, str(c.body["metadata"]["name"])) for c in companions}


def _name_of_new_pod(action: Action) -> str | None:
    return action.name if isinstance(action, Create) and action.resource == PODS else None


# The server's rules.


def carried_out(world: Scene, seen: Scene, made: Plan, writes: int) -> Scene:
    """The first so many writes of a plan that was made from what was seen; deleted pods go in their own time."""
    if made.status == seen.job.status:
        status = world.job.status
    elif world.manifest is seen.manifest:
        status = made.status
    else:
        return world  # the status is for an older version of the job
    actions = sorted(made.actions, key=lambda action: not isinstance(action, Delete))[:writes]
    for action in actions:
        if isinstance(action, Delete) and action.resource == PODS:
            world = terminating(world, action.target.uid)
    return world.after(Plan(status, tuple(action for action in actions if _is_taken_on(world, seen, action))))


def _is_taken_on(world: Scene, seen: Scene, action: Action) -> bool:
    """Whether the server does as it is asked; the deletion of pods is seen to elsewhere."""
    key = (action.resource.kind, action.name)
    match action:
        case Create():
            return not (_names(world, action.resource) & {action.name} or key in world.others)
        case Patch(resource, target, _) if resource == PODS:
            return action.name in world.pods and world.pods[action.name].metadata.uid == target.uid
        case Patch():
            return world.others.get(key) is seen.others.get(key)
        case _:
            return action.resource != PODS


def _names(world: Scene, resource: Resource) -> set[str]:
    return set(world.pods if resource == PODS else world.services if resource == SERVICES else ())


# Coming to rest.


def at_rest(world: Scene) -> Scene:
    """The cluster once the operator has had its way and everything that was going is gone."""
    for _ in range(PASSES):
        world = _cleared(world)
        following = world.after(checked(world.observed(), world.now))
        if following == world or following.is_deleted:
            return following
        world = following
    raise AssertionError(f"still changing after {PASSES} passes: {world.plan()}")


def _cleared(world: Scene) -> Scene:
    """Terminating pods have gone, strangers too, and the scheduler has admitted the group."""
    ours = {n: p for n, p in world.pods.items() if p.metadata.is_controlled_by(UID) and not p.metadata.is_terminating}
    world = world if ours == world.pods else replace(world, pods=ours)
    group = world.others.get(("PodGroup", "job"))
    if group is None or group.at("status", "phase") == "Running":
        return world
    return world.other("PodGroup", group.metadata, group.at("spec"), {"phase": "Running"})


def check_rest(world: Scene) -> None:
    if world.is_deleted:
        return
    made, job = checked(world.observed(), world.now), world.job
    assert (made.status, made.actions, made.marks, made.events) == (job.status, (), (), ())
    if made.wake_after is not None:
        later = world.at(made.wake_after).plan()
        assert (later.status, later.actions) != (made.status, made.actions), "woken for nothing"
    observed = world.observed()
    if not job.status.is_finished and job.status.is_true("Restarting") and failures_of(observed):
        assert made.wake_after is not None, "a pod is never replaced"
    lasting = _lasting(observed)
    passing = {key for key, held in world.others.items() if held.metadata.is_controlled_by(UID)} - lasting
    services = set(world.services) - {name for kind, name in lasting if kind == "Service"}
    if job.status.is_finished:
        assert {kind for kind, _ in passing} <= {"Job"}
    elif job.policy.suspend:
        assert (world.pods, services, passing) == ({}, set(), set())
    else:
        _check_work(world, observed, services)


def _check_work(world: Scene, observed: Observed, services: set[str]) -> None:
    """An active job has everything that may be there by now."""
    job, framework = world.job, observed.framework
    members = [m for m in job.members() if framework.may_start(m.role, observed.job, observed.counts)]
    delegated = {member.name for member in members if framework.role(member.role).delegated}
    done = {job.host(role, index) for role, indices in job.status.completed.items() for index in indices}
    waiting = {member.name for member in job.members()} - {member.name for member in members}
    assert (set(world.pods) | done) - waiting == {member.name for member in members} - delegated
    assert {name for kind, name in world.others if kind == "Job"} - waiting == delegated
    assert services == {member.name for member in job.members() if service_of(framework, member)}
    assert not job.status.is_true("Suspended")


@dataclass(frozen=True)
class Look:
    """How the operator looks: how many states behind its caches are, and after how many writes it dies."""

    job: int = 1
    pods: int = 1
    others: int = 1
    writes: int = 10**6


ages = st.integers(1, REMEMBERED)
looks = st.one_of(
    st.just(Look()),
    st.none(),
    st.builds(Look, writes=st.integers(0, 2)),
    st.builds(Look, job=ages, pods=ages, others=ages),
)
steps = st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 9), st.integers(0, 9), looks)


def looked_at(past: list[Scene], look: Look) -> Scene:
    """The cluster after the operator has looked at it as it was, planned, and written."""
    world = past[-1]
    job, pods, others = (past[-min(age, len(past))] for age in (look.job, look.pods, look.others))
    seen = replace(job, pods=pods.pods, services=others.services, others=others.others, now=world.now)
    return carried_out(world, seen, checked(seen.observed(), world.now), look.writes)


def check_follows(before: JobStatus, after: JobStatus) -> None:
    """What a job has been through is never forgotten."""
    assert all(after.attempts.get(slot, 0) >= count for slot, count in before.attempts.items())
    if before.is_finished:
        assert [before.is_true(end) for end in ENDS] == [after.is_true(end) for end in ENDS]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(job=jobs(), history=st.lists(steps, min_size=12, max_size=40))
def test_every_history_keeps_to_the_rules_and_comes_to_rest(
    job: Scene, history: list[tuple[Happening, int, int, Look | None]]
) -> None:
    past = [job.after()]

    for happening, which, choice, look in history:
        if past[0].job.status.is_finished:
            break
        after = happening(past[-1], which, choice)
        if after == past[-1] and after.job.policy.suspend:
            after = the_user_suspends_or_resumes(after, which, choice)  # or most of its life would be sleep
        past = [*past[1 - REMEMBERED :], after]
        if look is not None:
            past = [*past[1 - REMEMBERED :], looked_at(past, look)]
            check_follows(past[-2].job.status, past[-1].job.status)
        if past[-1].is_deleted:
            return

    rested = at_rest(past[-1])
    check_rest(rested)
    check_rest(at_rest(rested.policy(suspend=False)))
