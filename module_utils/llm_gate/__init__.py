"""The gate: asks a running LLM server questions with known answers and judges whether it may serve.

Plain Python with `requests` as the only outside dependency. The package works under two names, `llm_gate` and
`ansible.module_utils.llm_gate`, hence its relative imports. Nothing is read from package files at run time,
because Ansible ships only the `.py` files that are imported by name.
"""
