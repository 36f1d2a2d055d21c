"""Kimi K3 on vLLM's CPU backend: what vLLM lacks there, added out of tree.

Nothing here runs on a GPU: there vLLM's own K3 classes serve untouched. One module per concern; each
override is a small function that says what breaks without it and what upstream change retires it.
`register.register()` applies them all, in every vLLM process, through the plugin (`engine.plugin`).
"""
