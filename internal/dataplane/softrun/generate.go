package softrun

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types soft ../../../bpf/soft/kernel.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
