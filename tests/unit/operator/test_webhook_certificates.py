"""Certificates over the years: when they are replaced, and that no client ever meets one it was not told to trust."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from trainmaster.operator import certificates
from trainmaster.operator.certificates import AUTHORITY_LIFE, SERVING_LIFE, SERVING_MARGIN, Keyring, renewed

HOST = "trainmaster-webhook.home.svc"
START = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
DAY = timedelta(days=1).total_seconds()


def verify(keyring: Keyring, trusted: bytes, now: float, host: str = HOST) -> None:
    """As a strict client does that has been told to trust these authorities."""
    store = Store(x509.load_pem_x509_certificates(trusted))
    moment = datetime.fromtimestamp(now, UTC)
    verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(x509.DNSName(host))
    verifier.verify(keyring.serving.certificate, [])


def test_a_first_certificate_is_good_at_once_and_for_its_host_only() -> None:
    made = renewed(None, [HOST], START)

    verify(made, made.trusted, START)
    with pytest.raises(VerificationError):
        verify(made, made.trusted, START, "somebody-else.home.svc")


def test_a_client_whose_clock_is_behind_takes_it_too() -> None:
    made = renewed(None, [HOST], START)

    verify(made, made.trusted, START - 1800)


def test_nothing_changes_while_everything_is_fresh() -> None:
    made = renewed(None, [HOST], START)

    assert renewed(made, [HOST], START + 59 * DAY) is made


def test_the_certificate_is_replaced_a_month_before_its_end_by_the_same_authority() -> None:
    made = renewed(None, [HOST], START)
    due = START + (SERVING_LIFE - SERVING_MARGIN).total_seconds() + 1

    later = renewed(made, [HOST], due)

    assert later.authorities == made.authorities
    assert later.serving != made.serving
    verify(later, made.trusted, due)


def test_other_hosts_need_another_certificate() -> None:
    made = renewed(None, [HOST], START)

    later = renewed(made, [HOST, "127.0.0.1"], START)

    names = later.serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert later.authorities == made.authorities
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_through_twelve_years_yesterdays_trust_holds_today() -> None:
    """Looks are a week apart; a client trusts what the look before has told."""
    keyring = renewed(None, [HOST], START)
    authorities, servings = {keyring.authorities[0].pem}, {keyring.serving.pem}

    for week in range(1, 12 * 52):
        now = START + week * 7 * DAY
        trusted, keyring = keyring.trusted, renewed(keyring, [HOST], now)
        verify(keyring, trusted, now)
        authorities |= {one.pem for one in keyring.authorities}
        servings.add(keyring.serving.pem)
        assert len(keyring.authorities) <= 2

    assert len(authorities) == 3
    assert len(servings) > 60


def test_after_years_of_absence_all_is_made_anew() -> None:
    made = renewed(None, [HOST], START)
    now = START + AUTHORITY_LIFE.total_seconds() + DAY

    later = renewed(made, [HOST], now)

    assert not set(later.authorities) & set(made.authorities)
    verify(later, later.trusted, now)


def test_a_secret_gives_back_what_it_was_given() -> None:
    made = renewed(renewed(None, [HOST], START), [HOST], START + 4.5 * 365 * DAY)

    found = certificates.parse(certificates.render(made))

    assert found is not None
    assert [one.pem for one in found.authorities] == [one.pem for one in made.authorities]
    assert len(found.authorities) == 2
    assert (found.serving.pem, found.serving.key_pem) == (made.serving.pem, made.serving.key_pem)
    assert renewed(found, [HOST], START + 4.5 * 365 * DAY) is found


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key")), id="empty"),
        pytest.param({"tls.key": None}, id="key missing"),
        pytest.param({"tls.crt": "?"}, id="not base64"),
        pytest.param({"ca.crt": base64.b64encode(b"nonsense").decode()}, id="not a certificate"),
        pytest.param({"ca.key": ""}, id="fewer keys than authorities"),
        pytest.param({"tls.key": certificates.render(renewed(None, [HOST], START))["tls.key"]}, id="another's key"),
    ],
)
def test_a_secret_that_holds_anything_else_counts_as_empty(changes: dict[str, str | None]) -> None:
    data: dict[str, str | None] = {**certificates.render(renewed(None, [HOST], START)), **changes}

    assert certificates.parse({name: value for name, value in data.items() if value is not None}) is None
