"""The stream of a snapshot over gRPC, which is several times as fast as etcd's JSON gateway (docs/decisions/0033).

The only module that uses gRPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import grpc

from kubewright.base.errors import APIError, Unreachable
from kubewright.etcd import maintenance_pb2 as api
from kubewright.etcd.api import Credentials, refusal

STALL: Final = 30.0
"""Seconds after which a connection whose other end does not respond is given up, also while no data arrives."""
_METHOD: Final = "/etcdserverpb.Maintenance/Snapshot"
_DOING: Final = "send a snapshot"
_OF_ETCD: Final = ("etcdserver: ", "auth: ")
"""How etcd's own messages begin; the others with the code UNAVAILABLE are those of a lost connection."""


def pieces(endpoint: str, *, credentials: Credentials | None, stall: float = STALL) -> Iterator[bytes]:
    """Yield the file of a snapshot in pieces of 32 KiB.

    Raises EtcdError if etcd refuses, Unreachable for a connection that is lost.
    """
    with _channel(endpoint, credentials, stall) as channel:
        method = channel.unary_stream(
            _METHOD, request_serializer=api.SnapshotRequest.SerializeToString, response_deserializer=api.SnapshotResponse.FromString
        )
        call = method(api.SnapshotRequest())
        try:
            for message in call:
                yield message.blob
        except grpc.RpcError as error:
            raise _explained(endpoint, error) from error
        finally:
            call.cancel()


@contextmanager
def _channel(endpoint: str, credentials: Credentials | None, stall: float) -> Iterator[grpc.Channel]:
    """Provide a connection.

    It is closed if a ping gets no answer; etcd accepts pings every 5 s (etcd v3.6, server/embed:
    DefaultGRPCKeepAliveMinTime).
    """
    options = (
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", int(stall * 1000)),  # the limit for establishing it
        ("grpc.keepalive_time_ms", int(stall * 1000 / 3)),
        ("grpc.keepalive_timeout_ms", int(stall * 2000 / 3)),
        ("grpc.http2.ping_timeout_ms", int(stall * 2000 / 3)),
        ("grpc.http2.max_pings_without_data", 0),
    )
    place = urlsplit(endpoint).netloc
    if credentials is None:
        channel = grpc.insecure_channel(place, options=options)
    else:
        secured = grpc.ssl_channel_credentials(
            root_certificates=credentials.ca, private_key=credentials.key, certificate_chain=credentials.certificate
        )
        channel = grpc.secure_channel(place, secured, options=options)
    try:
        yield channel
    finally:
        channel.close()


def _explained(endpoint: str, error: object) -> APIError:
    code, said = (error.code(), error.details() or "") if isinstance(error, grpc.Call) else (grpc.StatusCode.UNKNOWN, str(error))
    if code is grpc.StatusCode.UNAVAILABLE and not said.startswith(_OF_ETCD):
        return Unreachable(
            f"the connection to etcd at {endpoint} was lost", detail=said[:500], remedy="make sure that this etcd runs, then try again"
        )
    return refusal({"code": code.value[0], "message": said}, server=endpoint, doing=_DOING)
