"""A certificate authority for a test: itself, and certificates for names."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Made anew for each run; `file` is what a client has to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of tests")])
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        own = self._builder(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(usage, critical=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(self._signed(own))

    def certificate(self, names: list[str]) -> Path:
        """A file with a key and a certificate for the names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / f"{names[0].replace('*', '_')}.pem"
        path.write_bytes(private + self._signed(builder))
        return path

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(days=1))
        builder = builder.not_valid_after(now + dt.timedelta(days=1))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        return builder.add_extension(identifier, critical=False).add_extension(issuer, critical=False)

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
