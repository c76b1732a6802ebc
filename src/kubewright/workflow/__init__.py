"""The phase engine: trees of phases, the runner, plans. Imports only base; knows no Kubernetes."""
