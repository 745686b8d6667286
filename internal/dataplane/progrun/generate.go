package progrun

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type bench_place bench ../../../bpf/bench.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel hostroute ../../../bpf/hostroute.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
