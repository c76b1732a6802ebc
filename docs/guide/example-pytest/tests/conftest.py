"""Clients of the cluster that kubewright's plugin starts."""

import kubernetes
import lightkube
import pytest


@pytest.fixture(scope="session")
def client(kubewright_cluster):
    """lightkube, for the operator."""
    config = lightkube.KubeConfig.from_file(str(kubewright_cluster.kubeconfig))
    client = lightkube.Client(config=config)
    yield client
    client.close()


@pytest.fixture(scope="session")
def official(kubewright_cluster):
    """The official client, as somebody who uses the cluster."""
    api = kubernetes.config.new_client_from_config(str(kubewright_cluster.kubeconfig))
    yield kubernetes.client.CoreV1Api(api)
    api.close()
