"""Kubeconfig documents: creating them, reading those of users, resolving contexts, and what a discovery file may contain."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis import kubeconfig
from kubewright.apis.kubeconfig import BearerToken, CertificateFiles, Cluster, EmbeddedCertificate, User, kubeconfig_document, parse
from kubewright.base import yaml
from kubewright.base.errors import KubewrightError, ValidationError

CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
SERVER = "https://10.98.0.11:6443"
CREDENTIALS = EmbeddedCertificate(certificate_pem=b"certificate", key_pem=b"key")


def made(credentials=CREDENTIALS, **changes: object):
    return kubeconfig_document(server=SERVER, cluster_name="kubernetes", user="me", credentials=credentials, **{"ca_pem": CA, **changes})


def text(value):
    return base64.b64encode(value).decode()


def fields(caught):
    return [(error.path.text, error.type.name) for error in caught.value.errors]


class TestMaking:
    def test_keys_and_names_are_those_of_kubeadm(self):
        document = made()

        assert list(document) == ["apiVersion", "clusters", "contexts", "current-context", "kind", "users"]
        assert document == {
            "apiVersion": "v1",
            "clusters": [{"cluster": {"certificate-authority-data": text(CA), "server": SERVER}, "name": "kubernetes"}],
            "contexts": [{"context": {"cluster": "kubernetes", "user": "me"}, "name": "me@kubernetes"}],
            "current-context": "me@kubernetes",
            "kind": "Config",
            "users": [{"name": "me", "user": {"client-certificate-data": text(b"certificate"), "client-key-data": text(b"key")}}],
        }

    @pytest.mark.parametrize(
        ("credentials", "body"),
        [
            (BearerToken(token="abcdef.0123456789abcdef"), {"token": "abcdef.0123456789abcdef"}),
            (CertificateFiles(certificate="/c.pem", key="/k.pem"), {"client-certificate": "/c.pem", "client-key": "/k.pem"}),
            (None, {}),
        ],
    )
    def test_credentials_may_be_of_other_kinds(self, credentials, body):
        assert made(credentials)["users"] == [{"name": "me", "user": body}]

    def test_the_kubeconfig_of_a_kubelet_can_be_created(self):
        """It names files, and a context and namespace of its own (kubelet v1.36: pkg/kubelet/certificate/bootstrap)."""
        document = made(CertificateFiles(certificate="/p", key="/p"), ca_pem=None, context="default-context", namespace="default")

        assert document["clusters"][0]["cluster"] == {"server": SERVER}
        assert document["contexts"] == [
            {"context": {"cluster": "kubernetes", "namespace": "default", "user": "me"}, "name": "default-context"}
        ]

    def test_secrets_stay_out_of_repr(self):
        assert "0123" not in repr(BearerToken(token="abcdef.0123456789abcdef"))
        assert "key" not in repr(CREDENTIALS).replace("key_pem", "")
        assert "hidden-token" not in repr(User(token="hidden-token", password="hidden-token"))

    @given(
        st.binary(max_size=40),
        st.binary(max_size=40),
        st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=20),
    )
    def test_a_created_kubeconfig_is_read_back(self, certificate, key, user):
        credentials = EmbeddedCertificate(certificate_pem=certificate, key_pem=key)
        document = kubeconfig_document(server=SERVER, cluster_name="c", user=user, credentials=credentials, ca_pem=CA)

        found = parse(yaml.load(yaml.dump(document)))

        assert found.cluster == Cluster(server=SERVER, certificate_authority_data=CA)
        assert found.user == User(client_certificate_data=certificate, client_key_data=key)
        assert found.current_context == f"{user}@c"


class TestReading:
    def test_all_fields_of_a_kubeconfig_are_read(self):
        found = parse(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "preferences": {},
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {
                            "server": SERVER,
                            "certificate-authority": "ca.crt",
                            "insecure-skip-tls-verify": True,
                            "tls-server-name": "name",
                            "proxy-url": "socks5://p",
                            "disable-compression": True,
                            "extensions": [],
                        },
                    }
                ],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
                "current-context": "x",
                "users": [
                    {
                        "name": "u",
                        "user": {
                            "tokenFile": "t",
                            "username": "a",
                            "password": "b",
                            "exec": {"command": "c"},
                            "auth-provider": {"name": "d"},
                            "as": "e",
                            "as-uid": "f",
                            "as-groups": ["g", "h"],
                        },
                    }
                ],
            },
            source="file",
        )

        assert found.cluster == Cluster(
            server=SERVER,
            certificate_authority="ca.crt",
            insecure_skip_tls_verify=True,
            tls_server_name="name",
            proxy_url="socks5://p",
            disable_compression=True,
        )
        assert found.user == User(
            token_file="t",
            username="a",
            password="b",
            exec={"command": "c"},
            auth_provider={"name": "d"},
            impersonate="e",
            impersonate_uid="f",
            impersonate_groups=("g", "h"),
        )
        assert (found.contexts["x"].namespace, found.source) == ("n", "file")

    def test_empty_lists_may_be_null(self):
        found = parse({"clusters": None, "users": None, "contexts": None, "current-context": None})

        assert (dict(found.clusters), dict(found.users), found.cluster, found.user) == ({}, {}, None, None)

    def test_every_problem_is_reported_with_its_path(self):
        document = {
            "apiVersion": "v2",
            "kind": "Pod",
            "clusters": [{"name": "a", "cluster": {"server": 7, "certificate-authority-data": "%"}}, {"name": "a"}, 5],
            "users": {"name": "x"},
            "contexts": [{"name": "x", "context": {"cluster": []}}],
            "current-context": False,
        }

        with pytest.raises(ValidationError) as caught:
            parse(document, source="admin.conf")

        assert fields(caught) == [
            ("apiVersion", "UNSUPPORTED"),
            ("kind", "UNSUPPORTED"),
            ("clusters[0].cluster.server", "TYPE"),
            ("clusters[0].cluster.certificate-authority-data", "INVALID"),
            ("clusters[1].name", "DUPLICATE"),
            ("clusters[2]", "TYPE"),
            ("users", "TYPE"),
            ("contexts[0].context.cluster", "TYPE"),
            ("current-context", "TYPE"),
        ]
        assert caught.value.what == "admin.conf is not a valid kubeconfig"

    def test_errors_never_show_secrets(self):
        user = {"token": ["hunter2"], "client-key-data": "hunter2!", "password": {"x": "hunter2"}}

        with pytest.raises(ValidationError) as caught:
            parse({"users": [{"name": "u", "user": user}]})

        assert len(caught.value.errors) == 3
        assert "hunter2" not in str(caught.value.as_map())

    @pytest.mark.parametrize("document", [None, [], "text", 7, True])
    def test_a_kubeconfig_that_is_no_object_is_refused(self, document):
        with pytest.raises(ValidationError, match="must be an object") as caught:
            parse(document)
        assert len(caught.value.errors) == 1


class TestUsing:
    def test_the_current_context_is_resolved(self):
        found = kubeconfig.require_usable(parse(made(namespace="n")))

        assert (found.cluster.server, found.user.client_key_data, found.namespace) == (SERVER, b"key", "n")

    def test_another_context_may_be_chosen(self):
        document = made()
        document["contexts"].append({"name": "other", "context": {"cluster": "kubernetes", "user": "me", "namespace": "o"}})

        assert kubeconfig.require_usable(parse(document), context="other").namespace == "o"

    @pytest.mark.parametrize(
        ("edit", "wanted"),
        [
            (lambda d: d.update({"current-context": ""}), [("current-context", "REQUIRED")]),
            (lambda d: d.update({"current-context": "x"}), [("current-context", "INVALID")]),
            (lambda d: d.update({"clusters": []}), [("contexts[0].context.cluster", "INVALID")]),
            (
                lambda d: d["contexts"][0].update({"context": {}}),
                [("contexts[0].context.cluster", "REQUIRED"), ("contexts[0].context.user", "REQUIRED")],
            ),
            (lambda d: d["clusters"][0]["cluster"].pop("server"), [("clusters[0].cluster.server", "REQUIRED")]),
            (
                lambda d: d["clusters"][0]["cluster"].update({"certificate-authority": "x", "insecure-skip-tls-verify": True}),
                [("clusters[0].cluster.certificate-authority", "FORBIDDEN"), ("clusters[0].cluster.insecure-skip-tls-verify", "FORBIDDEN")],
            ),
            (
                lambda d: d["users"][0]["user"].update({"client-certificate": "x", "client-key": "y"}),
                [("users[0].user.client-certificate", "FORBIDDEN"), ("users[0].user.client-key", "FORBIDDEN")],
            ),
            (lambda d: d["users"][0]["user"].pop("client-key-data"), [("users[0].user.client-key-data", "REQUIRED")]),
            (lambda d: d["users"][0]["user"].update({"token": "t", "username": "u"}), [("users[0].user.username", "FORBIDDEN")]),
            (lambda d: d["users"][0]["user"].update({"exec": {}, "auth-provider": {}}), [("users[0].user.auth-provider", "FORBIDDEN")]),
        ],
    )
    def test_unusable_values_are_reported_by_field(self, edit, wanted):
        document = made()
        edit(document)

        with pytest.raises(ValidationError) as caught:
            kubeconfig.require_usable(parse(document))

        assert fields(caught) == wanted

    def test_unused_entries_are_not_checked(self):
        document = made()
        document["clusters"].append({"name": "broken", "cluster": {}})

        assert kubeconfig.require_usable(parse(document)).cluster.server == SERVER


UNNAMED = {"clusters": [{"name": "", "cluster": {"server": SERVER, "certificate-authority-data": text(CA)}}]}


class TestDiscovery:
    @pytest.mark.parametrize("untrusted", [True, False])
    def test_a_cluster_without_a_name_is_used(self, untrusted):
        found = kubeconfig.resolve_discovery(parse(UNNAMED), untrusted=untrusted)

        assert (found.cluster.server, found.user) == (SERVER, User())

    def test_a_current_context_has_precedence(self):
        found = kubeconfig.resolve_discovery(parse(made()), untrusted=True)

        assert found.user != User()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("exec", {"command": "x"}),
            ("auth-provider", {"name": "x"}),
            ("tokenFile", "x"),
            ("client-certificate", "x"),
            ("client-key", "x"),
        ],
    )
    def test_a_user_from_a_url_may_not_act_on_this_machine(self, field, value):
        """Even if nothing refers to that user: the next file made from this one might."""
        document = {**UNNAMED, "users": [{"name": "u", "user": {field: value}}]}

        assert kubeconfig.resolve_discovery(parse(document), untrusted=False).cluster.server == SERVER
        with pytest.raises(ValidationError) as caught:
            kubeconfig.resolve_discovery(parse(document), untrusted=True)
        assert fields(caught) == [(f"users[0].user.{field}", "FORBIDDEN")]

    @pytest.mark.parametrize(("field", "value"), [("certificate-authority", "/etc/passwd"), ("insecure-skip-tls-verify", True)])
    def test_a_cluster_from_a_url_may_not_act_on_this_machine(self, field, value):
        document = {"clusters": [{"name": "", "cluster": {"server": SERVER, field: value}}]}

        assert kubeconfig.resolve_discovery(parse(document), untrusted=False).cluster.server == SERVER
        with pytest.raises(ValidationError) as caught:
            kubeconfig.resolve_discovery(parse(document), untrusted=True)
        assert fields(caught) == [(f"clusters[0].cluster.{field}", "FORBIDDEN")]

    @pytest.mark.parametrize(
        ("document", "kind"),
        [
            ({}, "REQUIRED"),
            ({"clusters": [{"name": "other", "cluster": {"server": SERVER}}]}, "REQUIRED"),
            ({"clusters": [{"name": "", "cluster": {"server": "http://a"}}]}, "INVALID"),
        ],
    )
    def test_a_cluster_over_https_is_required(self, document, kind):
        with pytest.raises(ValidationError) as caught:
            kubeconfig.resolve_discovery(parse(document), untrusted=False)
        assert fields(caught) == [("clusters", kind)]


KEYS = [
    "apiVersion",
    "kind",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "name",
    "cluster",
    "user",
    "context",
    "server",
    "exec",
    "token",
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["v1", "Config"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4), max_leaves=12
)


@given(VALUES)
def test_no_document_raises_outside_the_tree(document):
    with contextlib.suppress(KubewrightError):
        found = parse(document)
        for use in (kubeconfig.require_usable, lambda one: kubeconfig.resolve_discovery(one, untrusted=True)):
            with contextlib.suppress(KubewrightError):
                use(found)


def test_a_problem_of_a_document_is_reported_with_its_position():
    text = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user: {token: 5, client-key-data: '*'}\ncontexts: {}\n"
    with pytest.raises(ValidationError) as caught:
        parse(yaml.load_one(text, source="admin.conf"))
    assert caught.value.what == "admin.conf is not a valid kubeconfig"
    assert [(error.path.text, error.source) for error in caught.value.errors] == [
        ("users[0].user.client-key-data", "admin.conf:5:20"),
        ("users[0].user.token", "admin.conf:5:10"),
        ("contexts", "admin.conf:6:1"),
    ]
    assert parse(yaml.load_one("kind: Config\n", source="x")).source == "x"
