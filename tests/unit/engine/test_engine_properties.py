"""What holds for every job in every history: random jobs, random lives, operators that die or look too late.

The machine keeps a small cluster in memory. Pods come to run, end, are deleted by others and go in their own time;
the user scales, suspends and resumes; the operator plans from what is there or from what was there a while ago, and
what it asks for is carried out under the server's rules: a status for an older version, a create for a name that is
taken, a delete or patch for another UID or version are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from trainmaster.api.status import JobStatus
from trainmaster.engine import gang
from trainmaster.engine.actions import Action, Create, Delete, Patch
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan
from trainmaster.frameworks import BUILT_IN
from trainmaster.objects import timestamp
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.scene import UID, Scene, a_job

PASSES = 12
"""In so many passes a cluster in which nothing happens must have come to rest."""

REMEMBERED = 6
"""How many states ago an operator may have looked."""

OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "cleanPodPolicy": st.sampled_from(["None", "Running", "All", ""]),
    "backoffLimit": st.integers(0, 3),
    "activeDeadlineSeconds": st.sampled_from([0, 30, 1000]),
    "ttlSecondsAfterFinished": st.sampled_from([0, 20]),
    "suspend": st.booleans(),
}
SPECIAL: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "TFJob": st.fixed_dictionaries(
        {}, optional={"successPolicy": st.just("AllWorkers"), "enableDynamicWorker": st.booleans()}
    ),
    "PyTorchJob": st.sampled_from([{}, {"elasticPolicy": {}}, {"elasticPolicy": {"metrics": [{"type": "Resource"}]}}]),
}


@st.composite
def jobs(draw: st.DrawFn) -> Scene:
    """Any valid job of any kind, under any settings."""
    framework = draw(st.sampled_from(BUILT_IN))
    optional = [role for role in framework.roles if not role.required]
    chosen = {role.name for role in draw(st.lists(st.sampled_from(optional), min_size=1, unique=True))}
    if framework.kind == "TFJob" and {"Chief", "Master"} <= chosen:
        chosen -= {"Master"}
    scene = a_job(framework.kind, **draw(SPECIAL.get(framework.kind, st.just({}))))
    if "elasticPolicy" in scene.manifest["spec"]:
        chosen |= {"Worker"}
    for role in framework.roles:
        if role.required or role.name in chosen:
            replicas = draw(st.integers(role.min, 3 if role.max is None else role.max))
            restart = draw(st.sampled_from([None, "Always", "OnFailure", "Never", "ExitCode"]))
            scene = scene.role(role.name, replicas, restart)
    scheduler = draw(st.sampled_from(["", "", "volcano", "my-scheduler", "kube-batch"]))
    scene = scene.having(gang_scheduler=scheduler, compat_2021=draw(st.booleans()))
    policy = draw(st.fixed_dictionaries({}, optional=OPTIONAL))
    return scene.policy(**policy) if policy else scene


# What every plan keeps to.


def checked(observed: Observed, now: float) -> Plan:
    made = plan(observed, now)
    assert plan(observed, now) == made, "planning changed what was observed"
    assert plan(replace(observed), now) == made, "the same observation gave another plan"
    _check_order_does_not_matter(observed, now, made)
    _check_status(made.status)
    for action in made.actions:
        _check_action(observed, action)
    targets = [(a.resource, a.name) for a in made.actions]
    assert len(targets) == len(set(targets)), "two writes to one object"
    if observed.job.status.is_finished or observed.job.policy.suspend:
        assert not any(isinstance(a, Create) for a in made.actions), "a job at rest makes something"
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
        case Create(resource, body, _):
            names = {member.name for member in job.members()} if resource in (PODS, SERVICES) else {job.name}
            (owner,) = body["metadata"]["ownerReferences"]
            assert action.name in names
            assert (owner["uid"], owner["controller"]) == (UID, True)
            assert "generateName" not in body["metadata"]
        case Delete(resource, target) if resource == job.resource:
            assert (target.uid, job.status.is_finished) == (UID, True)
        case Delete(_, target) | Patch(_, target, _):
            assert target.is_controlled_by(UID), "a write to somebody else's object"
            assert not target.is_terminating


def _name_of_new_pod(action: Action) -> str | None:
    return action.name if isinstance(action, Create) and action.resource == PODS else None


# The server's rules.


def carried_out(world: Scene, seen: Scene, made: Plan, writes: int) -> Scene:
    """The first so many writes of a plan that was made from what was seen; deleted pods go in their own time."""
    if made.status != seen.job.status:
        if world.manifest is not seen.manifest:
            return world  # the status is for an older version of the job
        world = world.standing(made.status)
    for action in sorted(made.actions, key=lambda action: not isinstance(action, Delete))[:writes]:
        match action:
            case Delete(resource, target) if resource == PODS:
                world = _terminating(world, target.uid)
            case Create() if _is_taken(world, action):
                pass
            case Patch(resource, target, _):
                key = (resource.kind, target.name)
                if world.others.get(key) is seen.others.get(key):
                    world = world.after(Plan(world.job.status, (action,)))
            case _:
                world = world.after(Plan(world.job.status, (action,)))
    return world


def _is_taken(world: Scene, action: Create) -> bool:
    if action.resource == PODS:
        return action.name in world.pods
    if action.resource == SERVICES:
        return action.name in world.services
    return (action.resource.kind, action.name) in world.others


def _terminating(world: Scene, uid: str) -> Scene:
    stamp = timestamp.render(world.now)
    return replace(
        world,
        pods={
            name: msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=stamp))
            if pod.metadata.uid == uid and not pod.metadata.is_terminating
            else pod
            for name, pod in world.pods.items()
        },
    )


def _ended(world: Scene, pod: Pod, phase: str, exit_code: int | None) -> Pod:
    """A pod in its last phase; without an exit code it was lost with its node."""
    if exit_code is None:
        return msgspec.structs.replace(pod, status=PodStatus(phase=phase))
    terminated = Terminated(exit_code=exit_code, finished_at=timestamp.render(world.now))
    container = ContainerStatus(name=world.framework.container, state=ContainerState(terminated=terminated))
    return msgspec.structs.replace(pod, status=PodStatus(phase=phase, container_statuses=(container,)))


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
    made, job = checked(world.observed(), world.now), world.job
    assert (made.status, made.actions, made.marks, made.events) == (job.status, (), (), ())
    if made.wake_after is not None:
        later = world.at(made.wake_after)
        assert later.plan() != replace(made, wake_after=later.plan().wake_after), "woken for nothing"
    companions = [held for held in world.others.values() if held.metadata.is_controlled_by(UID)]
    if job.status.is_finished:
        assert companions == []
    elif job.policy.suspend:
        assert (world.pods, world.services, companions) == ({}, {}, [])
    else:
        done = {job.host(role, index) for role, indices in job.status.completed.items() for index in indices}
        assert set(world.pods) | done == {member.name for member in job.members()}
        assert set(world.services) == {member.name for member in job.members()}
        assert not job.status.is_true("Suspended")


class Histories(RuleBasedStateMachine):
    world: Scene
    past: list[Scene]

    def become(self, world: Scene) -> None:
        before, self.world = self.past[-1].job.status if self.past else JobStatus(), world
        after = world.job.status
        self.past = [*self.past[1 - REMEMBERED :], world]
        assert all(after.attempts.get(slot, 0) >= count for slot, count in before.attempts.items())
        if before.is_finished:
            assert (after.is_true("Succeeded"), after.is_true("Failed")) == (
                before.is_true("Succeeded"),
                before.is_true("Failed"),
            )

    def owned(self) -> list[Pod]:
        return [pod for pod in self.world.pods.values() if pod.metadata.is_controlled_by(UID)]

    def set_pod(self, pod: Pod) -> None:
        self.become(replace(self.world, pods={**self.world.pods, pod.name: pod}))

    @initialize(scene=jobs())
    def begin(self, scene: Scene) -> None:
        assert scene.problems == []
        self.past = []
        self.become(scene)

    def reconcile(self, seen: Scene, writes: int) -> None:
        made = checked(seen.observed(), self.world.now)
        self.become(carried_out(self.world, seen, made, writes))

    # The operator.

    @precondition(lambda self: not self.world.is_deleted)
    @rule()
    def look(self) -> None:
        self.reconcile(self.world, writes=10**6)

    @precondition(lambda self: not self.world.is_deleted)
    @rule(writes=st.integers(0, 3))
    def look_and_die(self, writes: int) -> None:
        self.reconcile(self.world, writes)

    @precondition(lambda self: not self.world.is_deleted)
    @rule(job=st.integers(1, REMEMBERED), pods=st.integers(1, REMEMBERED), others=st.integers(1, REMEMBERED))
    def look_too_late(self, job: int, pods: int, others: int) -> None:
        """Every cache lags behind by as much as it likes."""
        past = [self.past[-min(age, len(self.past))] for age in (job, pods, others)]
        seen = replace(past[0], pods=past[1].pods, services=past[2].services, others=past[2].others, now=self.world.now)
        self.reconcile(seen, writes=10**6)

    # The kubelets.

    @precondition(lambda self: self.owned())
    @rule(which=st.integers(0, 9), restarts=st.sampled_from([0, 0, 1, 3]))
    def pod_runs(self, which: int, restarts: int) -> None:
        pod = self.owned()[which % len(self.owned())]
        if not pod.is_finished:
            container = ContainerStatus(name=self.world.framework.container, restart_count=restarts)
            self.set_pod(msgspec.structs.replace(pod, status=PodStatus("Running", container_statuses=(container,))))

    @precondition(lambda self: self.owned())
    @rule()
    def all_pods_run(self) -> None:
        running = {p.name: msgspec.structs.replace(p, status=PodStatus("Running")) for p in self.owned()}
        kept = {name: pod for name, pod in self.world.pods.items() if name not in running or pod.is_finished}
        self.become(replace(self.world, pods={**running, **kept}))

    @precondition(lambda self: self.owned())
    @rule(which=st.integers(0, 9), phase=st.sampled_from(["Succeeded", "Failed"]), code=st.sampled_from([1, 137, None]))
    def pod_ends(self, which: int, phase: str, code: int | None) -> None:
        pod = self.owned()[which % len(self.owned())]
        if not pod.is_finished:
            known = 0 if phase == "Succeeded" and code is not None else code
            self.set_pod(_ended(self.world, pod, phase, known))

    @precondition(lambda self: any(pod.metadata.is_terminating for pod in self.owned()))
    @rule(which=st.integers(0, 9))
    def pod_goes(self, which: int) -> None:
        going = [pod.name for pod in self.owned() if pod.metadata.is_terminating]
        gone = going[which % len(going)]
        self.become(replace(self.world, pods={name: pod for name, pod in self.world.pods.items() if name != gone}))

    # Others.

    @precondition(lambda self: self.owned())
    @rule(which=st.integers(0, 9))
    def somebody_deletes_a_pod(self, which: int) -> None:
        self.become(_terminating(self.world, self.owned()[which % len(self.owned())].metadata.uid))

    @precondition(lambda self: self.owned())
    @rule(which=st.integers(0, 9))
    def a_pod_vanishes(self, which: int) -> None:
        gone = self.owned()[which % len(self.owned())].name
        self.become(replace(self.world, pods={name: pod for name, pod in self.world.pods.items() if name != gone}))

    @precondition(lambda self: self.world.services)
    @rule(which=st.integers(0, 9))
    def somebody_deletes_a_service(self, which: int) -> None:
        gone = sorted(self.world.services)[which % len(self.world.services)]
        kept = {name: service for name, service in self.world.services.items() if name != gone}
        self.become(replace(self.world, services=kept))

    @rule(which=st.integers(0, 9), phase=st.sampled_from(["Running", "Failed"]))
    def a_stranger_takes_a_name(self, which: int, phase: str) -> None:
        free = [m for m in self.world.job.members() if m.name not in self.world.pods]
        if free:
            member = free[which % len(free)]
            self.become(self.world.pod(member.role, member.index, phase, owner="stranger"))

    @precondition(lambda self: ("PodGroup", "job") in self.world.others)
    @rule(phase=st.sampled_from(["Pending", "Inqueue", "Running", "gone"]))
    def the_scheduler_moves_the_group(self, phase: str) -> None:
        group = self.world.others["PodGroup", "job"]
        if phase == "gone":
            others = {key: held for key, held in self.world.others.items() if held is not group}
            self.become(replace(self.world, others=others))
        else:
            self.become(self.world.other("PodGroup", group.metadata, group.at("spec"), {"phase": phase}))

    @precondition(lambda self: gang.resource_of(self.world.settings) is not None and not self.world.others)
    @rule()
    def the_user_makes_a_group(self) -> None:
        self.become(self.world.group("Inqueue", owner=""))

    # The user, and time.

    @rule(which=st.integers(0, 9), replicas=st.integers(0, 4))
    def scale(self, which: int, replicas: int) -> None:
        roles = [r for r in self.world.framework.roles if self.world.job.has(r.name)]
        role = roles[which % len(roles)]
        bounded = max(role.min, replicas if role.max is None else min(replicas, role.max))
        self.become(self.world.scaled(role.name, bounded))

    @rule()
    def suspend_or_resume(self) -> None:
        self.become(self.world.policy(suspend=not self.world.job.policy.suspend))

    @rule(seconds=st.sampled_from([1, 5, 60, 400]))
    def time_passes(self, seconds: int) -> None:
        self.become(self.world.at(seconds))

    def teardown(self) -> None:
        """Left to itself the cluster comes to rest, and does so again when the job is resumed."""
        for suspended in (self.world.job.policy.suspend, False):
            if self.world.is_deleted:
                return
            held = self.world.policy(suspend=suspended) if self.world.job.policy.suspend != suspended else self.world
            self.world = at_rest(held)
            if not self.world.is_deleted:
                check_rest(self.world)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
