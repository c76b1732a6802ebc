"""How an agent looks at the machine that it runs on: through the reading verbs of a Host, from a thread of its own."""
