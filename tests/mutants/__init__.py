"""How many mistakes in the CUDA kernels the emulator and the gate's bounds find."""
