"""What can this machine do: GPU, CPU, memory, PCIe and RAM bandwidth, each fact with its provenance.

Knows nothing about planning, the engine or the command line.
"""
