"""The webhook in the operator, on an API server in memory: its certificate through months of virtual time, over TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.unit.operator.webhook_bed import (
    HOME,
    HOST,
    NO_CHECK_TIME,
    Calendar,
    Replica,
    bundle,
    connects,
    installed,
    refuses,
    running,
)

from trainmaster.kube.errors import KubeError
from trainmaster.objects.resource import SECRETS
from trainmaster.operator import webhook_server
from trainmaster.operator.webhook_protocol import MUTATING, NAME, VALIDATING
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.ports import free_port


def test_the_first_start_makes_a_certificate_and_has_it_trusted() -> None:
    api = installed()
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            await replica.shown()

    clock.run(main())
    assert bundle(api) == bundle(api, MUTATING) != ""
    assert api.object(VALIDATING, "", NAME)["webhooks"][0]["timeoutSeconds"] == 5


def test_replicas_share_one_certificate() -> None:
    api = installed()
    first, second = Replica(api), Replica(api)

    async def main() -> None:
        async with running(first, second):
            assert await first.shown() == await second.shown()

    clock.run(main())


def test_a_restart_takes_what_is_there() -> None:
    api = installed()
    shown: list[x509.Certificate] = []

    async def main() -> None:
        for _ in range(2):
            replica = Replica(api)
            async with running(replica):
                shown.append(await replica.shown())

    clock.run(main())
    assert shown[0] == shown[1]


def test_the_certificate_is_replaced_before_its_end_without_a_restart_and_on_all_replicas() -> None:
    api, calendar = installed(), Calendar()
    replicas = Replica(api, calendar), Replica(api, calendar)

    async def main() -> None:
        async with running(*replicas):
            first = await replicas[0].shown()
            await calendar.passes(59)
            same = await replicas[0].shown()
            await calendar.passes(2)
            fresh = [await replica.shown() for replica in replicas]

        assert first == same
        assert fresh[0] == fresh[1] != first
        assert fresh[0].not_valid_after_utc > first.not_valid_after_utc

    clock.run(main())


def test_connections_that_were_open_before_go_on() -> None:
    api = installed()
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            context = ssl.create_default_context(cadata=bundle(api))
            context.verify_flags |= NO_CHECK_TIME
            held = await asyncio.open_connection("127.0.0.1", replica.port, ssl=context, server_hostname=HOST)
            assert await refuses(*held)
            data = api.object(SECRETS, HOME, NAME)["data"]
            api.put(SECRETS, {**api.object(SECRETS, HOME, NAME), "data": {}})
            await asyncio.sleep(2 * webhook_server.EVERY)
            assert api.object(SECRETS, HOME, NAME)["data"] != data
            assert await refuses(*held)
            held[1].close()
            await held[1].wait_closed()

    clock.run(main())


def test_through_a_change_of_authority_the_api_server_always_trusts_us() -> None:
    api, calendar = installed(), Calendar()
    replica = Replica(api, calendar)
    bundles: set[str] = set()

    async def main() -> None:
        async with running(replica):
            for _ in range(40):
                await calendar.passes(50)
                await replica.shown()
                bundles.add(bundle(api))

    clock.run(main())
    sizes = sorted(text.count("BEGIN CERTIFICATE") for text in bundles)
    assert sizes[0] == 1
    assert sizes[-1] == 2


@pytest.mark.parametrize("resource", [VALIDATING, MUTATING], ids=lambda resource: resource.kind)
def test_a_bundle_that_somebody_overwrites_is_back_within_a_minute(resource: Any) -> None:
    api = installed()
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            right = bundle(api, resource)
            held = api.object(resource, "", NAME)
            webhook = {**held["webhooks"][0], "clientConfig": {"service": {"name": NAME}, "caBundle": "bm9uc2Vuc2U="}}
            api.put(resource, {**held, "webhooks": [webhook]})
            await asyncio.sleep(webhook_server.EVERY + 1)
            assert bundle(api, resource) == right

    clock.run(main())


def test_two_who_write_at_once_do_not_lose_a_certificate() -> None:
    api = installed()
    api.fail_next(f"PATCH */secrets/{NAME}", Fault(409, "Conflict"))
    api.fail_next(f"PATCH */{VALIDATING.plural}/{NAME}", Fault(409, "Conflict"))
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            await replica.shown()

    clock.run(main())


def test_nothing_is_written_when_nothing_changes() -> None:
    api = installed()
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            before = len(api.writes())
            await asyncio.sleep(3600)
            assert len(api.writes()) == before

    clock.run(main())


def own(directory: Path) -> trustme.CA:
    authority = trustme.CA()
    leaf = authority.issue_cert(HOST)
    (directory / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (directory / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    (directory / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return authority


def test_certificates_of_ones_own_are_shown_trusted_and_followed(tmp_path: Path) -> None:
    api = installed(secret=False)
    first = own(tmp_path)
    replica = Replica(api, webhook_cert_dir=str(tmp_path))

    async def main() -> None:
        async with running(replica):
            context = ssl.create_default_context(cadata=bundle(api))
            assert bundle(api) == first.cert_pem.bytes().decode()
            assert await connects(replica, context)
            own(tmp_path)
            await asyncio.sleep(2 * webhook_server.EVERY)
            context = ssl.create_default_context(cadata=bundle(api))
            assert bundle(api) != first.cert_pem.bytes().decode()
            assert await connects(replica, context)

    clock.run(main())
    assert not [path for _, path in api.requests if "/secrets/" in path]


def test_without_an_authority_in_the_directory_registrations_are_left_to_others(tmp_path: Path) -> None:
    api = installed(secret=False)
    own(tmp_path)
    (tmp_path / "ca.crt").unlink()
    replica = Replica(api, webhook_cert_dir=str(tmp_path))

    async def main() -> None:
        async with running(replica):
            pass

    clock.run(main())
    assert bundle(api) == ""


def test_files_that_break_later_leave_the_good_certificate_in_use(tmp_path: Path) -> None:
    api = installed()
    authority = own(tmp_path)
    replica = Replica(api, webhook_cert_dir=str(tmp_path))

    async def main() -> None:
        async with running(replica):
            (tmp_path / "tls.key").write_text("nonsense")
            await asyncio.sleep(2 * webhook_server.EVERY)
            context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
            assert await connects(replica, context)

    clock.run(main())


def test_an_encrypted_key_keeps_the_pod_from_being_ready_and_jobs_run_on(tmp_path: Path) -> None:
    api, health = installed(secret=False), free_port()
    own(tmp_path)
    key = load_pem_private_key((tmp_path / "tls.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "tls.key").write_bytes(locked)
    replica = Replica(api, webhook_cert_dir=str(tmp_path), health_probe_bind_address=f"127.0.0.1:{health}")

    async def main() -> None:
        async with running(replica):
            text = await readiness(health)

        assert "[-]webhook failed: the certificate and its key cannot be used together: the key is encrypted" in text
        assert "[+]caches ok" in text

    clock.run(main())


def test_registrations_of_another_name_than_the_services_are_found_by_their_flag() -> None:
    api = installed(registered=False)
    name = "trainmaster-elsewhere-webhook"
    api.put(VALIDATING, {"metadata": {"name": name}, "webhooks": [{"name": "validate.trainmaster.dev"}]})
    replica = Replica(api, webhook_registration=name)

    async def main() -> None:
        async with running(replica):
            pass

    clock.run(main())

    assert api.object(VALIDATING, "", name)["webhooks"][0]["clientConfig"]["caBundle"]


async def readiness(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz?verbose HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        pytest.param(
            {"secret": False},
            "[-]webhook failed: Secret trainmaster-system/trainmaster-webhook for the webhook's certificate is missing"
            ": apply what `trainmaster manifests --webhooks validating` prints",
            id="no Secret",
        ),
        pytest.param({"registered": False}, "[+]webhook ok", id="no registration"),
    ],
)
def test_what_is_missing_is_told_while_jobs_run_on(spoilt: dict[str, bool], said: str) -> None:
    api = installed(**spoilt)
    health = free_port()
    replica = Replica(api, health_probe_bind_address=f"127.0.0.1:{health}")

    async def main() -> None:
        async with running(replica):
            text = await readiness(health)

        assert said in text
        assert "[+]caches ok" in text

    clock.run(main())


def test_a_secret_that_comes_later_is_found() -> None:
    api = installed(secret=False)
    replica = Replica(api)

    async def main() -> None:
        async with running(replica):
            api.put(SECRETS, {"metadata": {"name": NAME, "namespace": HOME}})
            await asyncio.sleep(2 * webhook_server.EVERY)
            await replica.shown()

    clock.run(main())


@pytest.mark.parametrize("service", ["webhook", "webhook.", ".home", "a.b.c"])
def test_a_service_that_is_none_is_refused_with_an_example(service: str) -> None:
    async def main() -> None:
        await Replica(installed(), webhook_service=service).run()

    with pytest.raises(KubeError, match=r"--webhook-service: .* is not a Service such as trainmaster-webhook\."):
        clock.run(main())


def test_without_the_flag_there_is_no_webhook() -> None:
    api = installed()
    replica = Replica(api, webhook_bind_address="")

    async def main() -> None:
        async with running(replica):
            pass

    clock.run(main())
    assert not [path for _, path in api.requests if "/secrets/" in path or "webhookconfigurations" in path]
