"""Kernels of a stand-in for sgl-kernel."""
