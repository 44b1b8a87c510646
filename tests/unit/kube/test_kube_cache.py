"""The cache never goes back in time, whatever order news arrive in."""

from __future__ import annotations

from trainmaster.kube.cache import Cache
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import Pod

Change = tuple[str | None, str | None]


def a_pod(name: str, version: int | str, uid: str = "", **labels: str) -> Pod:
    meta = Meta(
        name=name, namespace="default", uid=uid or f"uid-of-{name}", resource_version=str(version), labels=labels
    )
    return Pod(meta)


def watched(cache: Cache[Pod]) -> list[Change]:
    """The changes told from now on, each as `uid@version` before and after."""
    changes: list[Change] = []

    def mark(pod: Pod | None) -> str | None:
        return f"{pod.metadata.uid}@{pod.metadata.resource_version}" if pod is not None else None

    cache.subscribe(lambda old, new: changes.append((mark(old), mark(new))))
    return changes


def version_of(cache: Cache[Pod], name: str) -> str | None:
    pod = cache.get(f"default/{name}")
    return pod.metadata.resource_version if pod is not None else None


def test_first_list_tells_of_every_object() -> None:
    cache = Cache[Pod]()
    changes = watched(cache)

    cache.replace([a_pod("a", 3), a_pod("b", 5)], "7")

    assert changes == [(None, "uid-of-a@3"), (None, "uid-of-b@5")]
    assert len(cache) == 2
    assert cache.resource_version == "7"


def test_second_list_tells_of_differences_only() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("same", 1), a_pod("changed", 2), a_pod("gone", 3)], "5")
    changes = watched(cache)

    cache.replace([a_pod("same", 1), a_pod("changed", 8), a_pod("new", 9)], "9")

    assert changes == [
        ("uid-of-gone@3", None),
        ("uid-of-changed@2", "uid-of-changed@8"),
        (None, "uid-of-new@9"),
    ]
    assert sorted(pod.name for pod in cache.values()) == ["changed", "new", "same"]


def test_events_add_change_and_remove() -> None:
    cache = Cache[Pod]()
    cache.replace([], "1")
    changes = watched(cache)

    cache.apply_event("ADDED", a_pod("a", 2))
    cache.apply_event("MODIFIED", a_pod("a", 3))
    cache.apply_event("DELETED", a_pod("a", 4))

    assert changes == [(None, "uid-of-a@2"), ("uid-of-a@2", "uid-of-a@3"), ("uid-of-a@3", None)]
    assert len(cache) == 0
    assert cache.resource_version == "4"


def test_index_follows_every_change() -> None:
    cache = Cache[Pod]({"app": lambda pod: pod.metadata.labels.values()})
    cache.replace([a_pod("b", 1, app="x"), a_pod("a", 2, app="x"), a_pod("c", 3, app="y")], "3")

    cache.apply_event("MODIFIED", a_pod("c", 4, app="x"))
    cache.wrote(a_pod("d", 5, app="y"))
    cache.removed("default/b", "uid-of-b")

    assert [pod.name for pod in cache.by("app", "x")] == ["a", "c"]
    assert [pod.name for pod in cache.by("app", "y")] == ["d"]
    assert cache.by("app", "z") == []


def test_what_we_wrote_is_there_before_the_watch_tells() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    changes = watched(cache)

    cache.wrote(a_pod("a", 6))

    assert version_of(cache, "a") == "6"
    assert changes == [(None, "uid-of-a@6")]


def test_echo_of_our_own_write_is_no_change() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.wrote(a_pod("a", 6))
    changes = watched(cache)

    cache.apply_event("ADDED", a_pod("a", 6))

    assert changes == []


def test_older_news_of_an_object_are_ignored() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.wrote(a_pod("a", 9))
    changes = watched(cache)

    cache.apply_event("MODIFIED", a_pod("a", 7))

    assert version_of(cache, "a") == "9"
    assert changes == []


def test_versions_are_compared_as_numbers() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 99)], "99")

    cache.apply_event("MODIFIED", a_pod("a", 100))

    assert version_of(cache, "a") == "100"


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", "x")], "x")

    cache.apply_event("MODIFIED", a_pod("a", "w"))
    cache.wrote(a_pod("b", "v"))

    assert version_of(cache, "a") == "w"
    assert version_of(cache, "b") == "v"


def test_late_answer_to_an_update_does_not_undo_what_the_watch_told() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.apply_event("MODIFIED", a_pod("a", 8))
    changes = watched(cache)

    cache.wrote(a_pod("a", 7))

    assert version_of(cache, "a") == "8"
    assert changes == []


def test_late_answer_to_a_create_does_not_raise_what_was_deleted_meanwhile() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.apply_event("ADDED", a_pod("a", 6))
    cache.apply_event("DELETED", a_pod("a", 7))
    changes = watched(cache)

    cache.wrote(a_pod("a", 6))

    assert cache.get("default/a") is None
    assert changes == []


def test_bookmark_beyond_a_write_means_it_was_deleted_meanwhile() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.advance("20")

    cache.wrote(a_pod("a", 20))

    assert cache.get("default/a") is None


def test_write_before_the_first_list_is_kept() -> None:
    cache = Cache[Pod]()

    cache.wrote(a_pod("a", 6))

    assert version_of(cache, "a") == "6"


def test_list_does_not_remove_what_was_written_after_it() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.wrote(a_pod("a", 12))
    changes = watched(cache)

    cache.replace([], "10")

    assert version_of(cache, "a") == "12"
    assert changes == []


def test_list_removes_what_was_written_before_it_and_is_not_in_it() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.wrote(a_pod("a", 6))

    cache.replace([], "10")

    assert cache.get("default/a") is None


def test_list_does_not_bring_back_an_older_state() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.wrote(a_pod("a", 12))

    cache.replace([a_pod("a", 3)], "10")

    assert version_of(cache, "a") == "12"


def test_list_from_before_our_delete_does_not_raise_the_dead() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.removed("default/a", "uid-of-a")

    cache.replace([a_pod("a", 3)], "6")
    after_list = cache.get("default/a")
    cache.apply_event("DELETED", a_pod("a", 7))

    assert after_list is None
    assert cache.get("default/a") is None


def test_older_events_of_what_we_removed_do_not_raise_the_dead() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.removed(a_pod("a", 3))
    changes = watched(cache)

    cache.apply_event("MODIFIED", a_pod("a", 6))
    cache.wrote(a_pod("a", 6))
    cache.apply_event("DELETED", a_pod("a", 7))

    assert changes == []
    assert len(cache) == 0


def test_object_made_and_removed_by_us_after_the_list_stays_removed() -> None:
    cache = Cache[Pod]()
    cache.replace([], "5")
    cache.wrote(a_pod("a", 12))
    cache.removed("default/a", "uid-of-a")
    changes = watched(cache)

    cache.replace([], "10")
    cache.apply_event("ADDED", a_pod("a", 12))
    cache.apply_event("DELETED", a_pod("a", 13))

    assert changes == []


def test_namesake_made_after_our_delete_is_welcome() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3, uid="old")], "5")
    cache.removed("default/a", "old")
    cache.wrote(a_pod("a", 9, uid="new"))
    changes = watched(cache)

    cache.apply_event("MODIFIED", a_pod("a", 6, uid="old"))
    cache.apply_event("DELETED", a_pod("a", 8, uid="old"))
    cache.apply_event("ADDED", a_pod("a", 9, uid="new"))

    assert version_of(cache, "a") == "9"
    assert changes == []


def test_deletion_of_the_predecessor_is_ignored() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3, uid="old")], "5")
    cache.wrote(a_pod("a", 9, uid="new"))

    cache.apply_event("DELETED", a_pod("a", 8, uid="old"))

    assert version_of(cache, "a") == "9"


def test_deletion_of_a_successor_removes_its_predecessor_too() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3, uid="old")], "5")

    cache.apply_event("DELETED", a_pod("a", 8, uid="new"))

    assert cache.get("default/a") is None


def test_object_that_left_the_selector_and_came_back_is_not_removed_by_the_old_news() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.wrote(a_pod("a", 9))

    cache.apply_event("DELETED", a_pod("a", 7))

    assert version_of(cache, "a") == "9"


def test_another_object_of_the_same_name_is_a_removal_and_an_addition() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3, uid="old")], "5")
    changes = watched(cache)

    cache.apply_event("MODIFIED", a_pod("a", 8, uid="new"))

    assert changes == [("old@3", None), (None, "new@8")]


def test_removal_of_something_else_by_that_name_is_ignored() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3, uid="new")], "5")

    cache.removed("default/a", "old")
    cache.removed("default/unknown", "whatever")

    assert version_of(cache, "a") == "3"


def test_removal_that_the_watch_told_first_leaves_no_trace() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "5")
    cache.apply_event("DELETED", a_pod("a", 6))

    cache.removed("default/a", "uid-of-a")
    cache.apply_event("ADDED", a_pod("a", 9))

    assert version_of(cache, "a") == "9"


def test_deletion_told_under_an_old_version_does_not_turn_back_the_clock() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3)], "20")

    cache.apply_event("DELETED", a_pod("a", 3))

    assert cache.get("default/a") is None
    assert cache.resource_version == "20"


def test_list_of_a_restored_server_is_the_truth() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 90), a_pod("b", 95)], "100")
    cache.removed("default/b", "uid-of-b")

    cache.replace([a_pod("a", 40), a_pod("b", 41)], "50")

    assert version_of(cache, "a") == "40"
    assert version_of(cache, "b") == "41"
    assert cache.resource_version == "50"


def test_listed_objects_that_could_not_be_read_stay_as_they_were() -> None:
    cache = Cache[Pod]()
    cache.replace([a_pod("a", 3), a_pod("b", 4)], "5")

    cache.replace([], "10", unread={"default/a"})

    assert version_of(cache, "a") == "3"
    assert cache.get("default/b") is None


def test_handlers_see_the_whole_list_from_the_first_change_on() -> None:
    cache = Cache[Pod]()
    sizes: list[int] = []
    cache.subscribe(lambda old, new: sizes.append(len(cache)))

    cache.replace([a_pod("a", 1), a_pod("b", 2), a_pod("c", 3)], "3")

    assert sizes == [3, 3, 3]
