"""Certificates and keys for your own federation: an authority, a server's certificate, a key per node."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("127.0.0.1", "localhost")
_MOST_NODES, _MOST_DAYS = 10_000, 36_500
_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,60}[A-Za-z0-9_.])?")


def make_certificates(folder: Path, hosts: Sequence[str] = (), nodes: int = 3, days: int = 365) -> list[Path]:
    """ca.crt, server.crt and server.key for loopback and the hosts given, and node0, node0.pub, ... for the nodes.

    The authority's private key is not kept: anyone who had it could pose as the server.
    """
    if not 1 <= nodes <= _MOST_NODES:
        raise ValueError(f"nodes is {nodes}; allowed: 1 to {_MOST_NODES:,}")
    if not 1 <= days <= _MOST_DAYS:
        raise ValueError(f"days is {days}; allowed: 1 to {_MOST_DAYS:,}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; allowed: a folder")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty, and keys are never overwritten; choose another folder")
    names = x509.SubjectAlternativeName([_host(host) for host in (*LOOPBACK, *hosts)])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedskew federation")])
    own = _certificate(issuer, issuer, authority, days).add_extension(x509.BasicConstraints(True, 0), critical=True)
    own = own.add_extension(_for("key_cert_sign", "crl_sign"), critical=True)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, [*hosts, "localhost"][0])])
    served = _certificate(subject, issuer, server, days).add_extension(names, critical=False)
    served = served.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    served = served.add_extension(x509.BasicConstraints(False, None), critical=True)
    served = served.add_extension(_for("digital_signature"), critical=True)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    served = served.add_extension(known, critical=False)
    files = {
        "ca.crt": own.sign(authority, hashes.SHA384()).public_bytes(form.Encoding.PEM),
        "server.crt": served.sign(authority, hashes.SHA384()).public_bytes(form.Encoding.PEM),
        "server.key": _secret(server, form.PrivateFormat.PKCS8),
    }
    for number in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        files[f"node{number}"] = _secret(key, form.PrivateFormat.OpenSSH)
        files[f"node{number}.pub"] = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return [_written(folder / name, content) for name, content in files.items()]


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _for(*uses: str) -> x509.KeyUsage:
    """A key for these uses only."""
    return x509.KeyUsage(**{name: name in uses for name in _USES})


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        if not _HOST.fullmatch(name):
            raise ValueError(
                f"host is {name!r}; allowed: an address, or a name of letters, digits, dots and hyphens"
            ) from None
        return x509.DNSName(name)


def _secret(key: ec.EllipticCurvePrivateKey, written: form.PrivateFormat) -> bytes:
    return key.private_bytes(form.Encoding.PEM, written, form.NoEncryption())


def _written(path: Path, content: bytes) -> Path:
    """Only the owner may read what is not public."""
    path.touch(mode=0o644 if path.suffix in (".crt", ".pub") else 0o600)
    path.write_bytes(content)
    return path
