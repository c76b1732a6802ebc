"""The sources of a NodeApprovalPolicy that are asked about each request: join records, Machines, DNS, a webhook."""
