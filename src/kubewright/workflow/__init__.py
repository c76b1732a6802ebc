"""The phase engine: trees of phases, the runner, plans, the journal. Imports only base; knows no Kubernetes."""
